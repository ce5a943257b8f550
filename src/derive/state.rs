//! `#[derive(State)]`: the traits.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{DeriveInput, Result};

use crate::fields::{Field, Rule, With};
use crate::model::Model;
use crate::update::update;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let model = Model::read(input)?;
    let (state, schema, update) = (state(&model), static_state(&model), update(&model));
    Ok(quote!(#state #schema #update))
}

fn state(model: &Model<'_>) -> TokenStream {
    let Model { input, krate, update, fields, .. } = model;
    let ident = &input.ident;
    let (impl_generics, type_generics, _) = input.generics.split_for_impl();
    let where_clause = model.where_clause(model.state_bounds());
    let names: Vec<_> = fields.iter().map(|f| &f.name).collect();
    let idents: Vec<_> = fields.iter().map(|f| f.ident).collect();
    let functions: Vec<_> = fields.iter().map(|f| f.rule.function()).collect();
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::State for #ident #type_generics #where_clause {
            type Update = #update #type_generics;

            fn empty(_: &#krate::state::Schema) -> Self {
                ::core::default::Default::default()
            }

            fn decode(
                schema: &#krate::state::Schema,
                values: #krate::__private::Map<::std::string::String, #krate::__private::Value>,
            ) -> ::core::result::Result<Self, #krate::state::StateError> {
                #krate::state::typed::decode(schema, values)
            }

            fn apply(&mut self, change: &#krate::state::Change) -> ::core::result::Result<(), #krate::state::StateError> {
                match &*change.field {
                    #(#names => #krate::state::typed::#functions(&mut self.#idents, change),)*
                    _ => ::core::result::Result::Err(#krate::state::StateError::UnknownField {
                        field: change.field.to_string(),
                        known: [#(#names),*].join(", "),
                    }),
                }
            }

            fn read(
                &self,
                field: &str,
            ) -> ::core::result::Result<::core::option::Option<#krate::__private::Value>, #krate::state::StateError> {
                match field {
                    #(#names => #krate::state::typed::read(field, &self.#idents),)*
                    _ => ::core::result::Result::Ok(::core::option::Option::None),
                }
            }
        }
    }
}

fn static_state(model: &Model<'_>) -> TokenStream {
    let Model { input, krate, fields, .. } = model;
    let (ident, name) = (&input.ident, input.ident.to_string());
    let (impl_generics, type_generics, _) = input.generics.split_for_impl();
    let described = quote!(Self: #krate::state::typed::DescribedState);
    let where_clause = model.where_clause(model.state_bounds().into_iter().chain([described]));
    let fields = fields.iter().map(|field| declared(field, krate));
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::StaticState for #ident #type_generics #where_clause {
            fn schema() -> #krate::state::Schema {
                #krate::state::Schema::new(
                    #name,
                    ::std::vec![#(#fields),*],
                    #krate::state::typed::json_schema::<Self>(),
                )
            }
        }
    }
}

/// The field as the schema has it.
fn declared(field: &Field<'_>, krate: &syn::Path) -> TokenStream {
    let (name, ty) = (&field.name, field.ty);
    match &field.rule {
        Rule::With(with) => {
            let With { name: text, path, operand } = &**with;
            let operand = operand.as_ref().unwrap_or(ty);
            let stored = text.value().trim().to_owned();
            // What does not fit is told at the path, and is still known to be made by a macro.
            let span = Span::mixed_site().located_at(text.span());
            let function = quote_spanned!(span=> {
                let function: fn(#ty, #operand) -> _ = #path;
                #krate::state::MergeFunction::new(#stored, function)
            });
            quote!(#krate::state::Field::with(#name, #function))
        }
        rule => {
            let rule = rule.variant();
            quote!(#krate::state::Field::new(#name, #krate::state::Rule::#rule))
        }
    }
}
