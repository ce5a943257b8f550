//! `#[derive(State)]`: the traits.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{DeriveInput, Ident, Result};

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
    let apply = fields.iter().map(|field| {
        let (span, ident) = (field.span(), field.ident);
        let (krate, function) = (model.krate_at(span), Ident::new(field.rule.function(), span));
        quote_spanned!(span=> #krate::state::typed::#function(&mut self.#ident, change))
    });
    let read = fields.iter().map(|field| {
        let (ident, krate) = (field.ident, model.krate_at(field.span()));
        quote_spanned!(field.span()=> #krate::state::typed::read(field, &self.#ident))
    });
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
                    #(#names => #apply,)*
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
                    #(#names => #read,)*
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
    let fields = fields.iter().map(|field| declared(field, model));
    let version = model.version.map(|version| quote!(.with_version(#version)));
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::StaticState for #ident #type_generics #where_clause {
            fn schema() -> #krate::state::Schema {
                #krate::state::Schema::new(
                    #name,
                    ::std::vec![#(#fields),*],
                    #krate::state::typed::json_schema::<Self>(),
                )
                #version
            }
        }
    }
}

/// The field as the schema has it.
fn declared(field: &Field<'_>, model: &Model<'_>) -> TokenStream {
    let (name, ty) = (&field.name, field.ty);
    let secret = field.secret.then(|| quote!(.secret()));
    match &field.rule {
        Rule::With(with) => {
            let With { name: text, path, operand } = &**with;
            let operand = operand.as_ref().unwrap_or(ty);
            let stored = text.value().trim().to_owned();
            // What does not fit is told at the path, and is still known to be made by a macro.
            let span = Span::mixed_site().located_at(text.span());
            let (krate, at_path) = (&model.krate, model.krate_at(span));
            let function = quote_spanned!(span=> {
                let function: fn(#ty, #operand) -> _ = #path;
                #at_path::state::MergeFunction::new(#stored, function)
            });
            quote!(#krate::state::Field::with(#name, #function)#secret)
        }
        rule => {
            let (krate, rule) = (&model.krate, rule.variant());
            quote!(#krate::state::Field::new(#name, #krate::state::Rule::#rule)#secret)
        }
    }
}
