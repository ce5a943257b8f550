//! `#[derive(State)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{DeriveInput, Error, Result, spanned::Spanned};

use crate::fields::{self, Field, Rule, With};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    if let Some(parameter) = input.generics.params.first() {
        let text = "a state has no generic parameters: its shape is stored with the thread; name the concrete types";
        return Err(Error::new(parameter.span(), text));
    }
    let fields = fields::read(input)?;
    let traits = traits(input, &fields);
    let update = update(input, &fields);
    Ok(quote!(#traits #update))
}

fn traits(input: &DeriveInput, fields: &[Field<'_>]) -> TokenStream {
    let ident = &input.ident;
    let update = format_ident!("{ident}Update");
    let type_name = ident.to_string();
    let names: Vec<_> = fields.iter().map(|f| &f.name).collect();
    let idents: Vec<_> = fields.iter().map(|f| f.ident).collect();
    let declared = fields.iter().map(declared);
    let functions: Vec<_> = fields.iter().map(|f| f.rule.function()).collect();
    quote! {
        #[automatically_derived]
        impl ::ferrata::State for #ident {
            type Update = #update;

            fn empty(_: &::ferrata::state::Schema) -> Self {
                ::core::default::Default::default()
            }

            fn decode(
                schema: &::ferrata::state::Schema,
                values: ::ferrata::__private::Map<::std::string::String, ::ferrata::__private::Value>,
            ) -> ::core::result::Result<Self, ::ferrata::state::StateError> {
                let stored: ::std::vec::Vec<::std::string::String> = values.keys().cloned().collect();
                ::ferrata::__private::from_value(::ferrata::__private::Value::Object(values))
                    .map_err(|source| ::ferrata::state::StateError::shape(schema, &stored, source))
            }

            fn apply(&mut self, change: &::ferrata::state::Change) -> ::core::result::Result<(), ::ferrata::state::StateError> {
                match &*change.field {
                    #(#names => ::ferrata::state::typed::#functions(&mut self.#idents, change),)*
                    _ => ::core::result::Result::Err(::ferrata::state::StateError::UnknownField {
                        field: change.field.to_string(),
                        known: [#(#names),*].join(", "),
                    }),
                }
            }

            fn read(
                &self,
                field: &str,
            ) -> ::core::result::Result<::core::option::Option<::ferrata::__private::Value>, ::ferrata::state::StateError> {
                match field {
                    #(#names => ::ferrata::state::typed::read(field, &self.#idents),)*
                    _ => ::core::result::Result::Ok(::core::option::Option::None),
                }
            }
        }

        #[automatically_derived]
        impl ::ferrata::StaticState for #ident {
            fn schema() -> ::ferrata::state::Schema {
                ::ferrata::state::Schema::new(
                    #type_name,
                    ::std::vec![#(#declared),*],
                    ::ferrata::__private::json_schema::<Self>(),
                )
            }
        }
    }
}

/// The field as the schema has it.
fn declared(field: &Field<'_>) -> TokenStream {
    let (name, ty) = (&field.name, field.ty);
    match &field.rule {
        Rule::With(with) => {
            let With { name: text, path, operand } = &**with;
            let operand = operand.as_ref().unwrap_or(ty);
            let stored = text.value().trim().to_owned();
            // What does not fit is told at the path.
            let function = quote_spanned!(text.span()=> {
                let function: fn(#ty, #operand) -> _ = #path;
                ::ferrata::state::MergeFunction::new(#stored, function)
            });
            quote!(::ferrata::state::Field::with(#name, #function))
        }
        rule => {
            let rule = rule.variant();
            quote!(::ferrata::state::Field::new(#name, ::ferrata::state::Rule::#rule))
        }
    }
}

fn update(input: &DeriveInput, fields: &[Field<'_>]) -> TokenStream {
    let (ident, visibility) = (&input.ident, &input.vis);
    let update = format_ident!("{ident}Update");
    let doc = format!("Changes of a [`{ident}`]: one operation per field. Start with `{ident}::update()`.");
    let methods = fields.iter().map(methods);
    let constants = fields.iter().map(|field| {
        let (name, field_ident, ty) = (&field.name, field.ident, field.ty);
        let constant = format_ident!("{}", name.to_uppercase());
        let doc = format!("The field `{name}`.");
        quote! {
            #[doc = #doc]
            #[allow(dead_code, reason = "made for whoever needs it")]
            #visibility const #constant: ::ferrata::state::FieldRef<#ident, #ty> =
                ::ferrata::state::FieldRef::new(#name, |state: &#ident| &state.#field_ident);
        }
    });
    quote! {
        #[automatically_derived]
        #[doc = #doc]
        #[derive(Clone, Debug, Default)]
        #[must_use = "an update does nothing until a node returns it or a run takes it as input"]
        #visibility struct #update(::ferrata::state::Update);

        #[automatically_derived]
        impl #ident {
            /// An update that changes nothing yet.
            #[allow(dead_code, reason = "made for whoever needs it")]
            #visibility fn update() -> #update {
                ::core::default::Default::default()
            }

            #(#constants)*
        }

        #[automatically_derived]
        #[allow(dead_code, reason = "made for whoever needs it")]
        impl #update {
            #(#methods)*

            /// The changes, unless a value was refused.
            #visibility fn into_changes(
                self,
            ) -> ::core::result::Result<::std::vec::Vec<::ferrata::state::Change>, ::ferrata::state::ValueError> {
                self.0.into_changes()
            }
        }

        #[automatically_derived]
        impl ::ferrata::IntoReturn<#ident> for #update {
            fn into_return(self) -> ::ferrata::__private::NodeReturn {
                ::ferrata::__private::NodeReturn::update(self.0)
            }
        }

        #[automatically_derived]
        impl ::core::convert::From<::ferrata::state::Update> for #update {
            fn from(update: ::ferrata::state::Update) -> Self {
                Self(update)
            }
        }

        #[automatically_derived]
        impl ::core::convert::From<#update> for ::ferrata::state::Update {
            fn from(update: #update) -> Self {
                update.0
            }
        }
    }
}

/// What a method takes for a value of that type: a number as it is, so that `.limit(5)` needs no suffix, anything else by `Into`.
fn value_type(ty: &syn::Type) -> TokenStream {
    const PLAIN: [&str; 15] =
        ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64", "bool"];
    let plain =
        matches!(ty, syn::Type::Path(path) if path.path.get_ident().is_some_and(|ident| PLAIN.iter().any(|name| ident == name)));
    if plain { quote!(#ty) } else { quote!(impl ::core::convert::Into<#ty>) }
}

/// The methods of the update type for one field.
fn methods(field: &Field<'_>) -> TokenStream {
    let (name, ident, ty) = (&field.name, field.ident, field.ty);
    let value = value_type(ty);
    let one = format_ident!("{}", field.singular);
    let set = format_ident!("set_{name}");
    let remove = format_ident!("remove_{name}");
    let set_method = quote! {
        /// Replaces the whole field, whatever else the step does to it.
        pub fn #set(self, value: impl ::core::convert::Into<#ty>) -> Self {
            let value: #ty = value.into();
            Self(self.0.overwrite(#name, &value))
        }
    };
    let remove_method = quote! {
        /// Removes entries.
        pub fn #remove<K: ::core::convert::Into<::std::string::String>>(
            self,
            keys: impl ::core::iter::IntoIterator<Item = K>,
        ) -> Self {
            Self(self.0.remove(#name, keys.into_iter().map(::core::convert::Into::into)))
        }
    };
    match &field.rule {
        Rule::Replace => quote! {
            /// Sets the field.
            pub fn #ident(self, value: #value) -> Self {
                let value: #ty = value.into();
                Self(self.0.set(#name, &value))
            }
        },
        Rule::Sum | Rule::Max | Rule::Min => quote! {
            /// Adds an operand to what the step makes of the field.
            pub fn #ident(self, operand: #value) -> Self {
                let operand: #ty = operand.into();
                Self(self.0.combine(#name, &operand))
            }

            #set_method
        },
        Rule::With(with) => {
            let operand = with.operand.as_ref().unwrap_or(ty);
            let value = value_type(operand);
            quote! {
                /// Hands an operand to the field's merge function.
                pub fn #ident(self, operand: #value) -> Self {
                    let operand: #operand = operand.into();
                    Self(self.0.combine(#name, &operand))
                }

                #set_method
            }
        }
        Rule::Append => quote! {
            /// Adds one item at the end.
            pub fn #one(self, item: impl ::core::convert::Into<<#ty as ::ferrata::state::typed::AppendField>::Item>) -> Self {
                let item: <#ty as ::ferrata::state::typed::AppendField>::Item = item.into();
                Self(self.0.append(#name, &[item]))
            }

            /// Adds items at the end.
            pub fn #ident(self, items: impl ::core::convert::Into<#ty>) -> Self {
                let items: #ty = items.into();
                Self(self.0.append(#name, &items))
            }

            #set_method
        },
        Rule::Merge => quote! {
            /// Sets one key.
            pub fn #one(
                self,
                key: impl ::core::convert::Into<::std::string::String>,
                item: impl ::core::convert::Into<<#ty as ::ferrata::state::typed::MergeField>::Item>,
            ) -> Self {
                let item: <#ty as ::ferrata::state::typed::MergeField>::Item = item.into();
                let key: ::std::string::String = key.into();
                Self(self.0.patch(#name, &::std::collections::BTreeMap::from([(key, item)])))
            }

            /// Sets keys.
            pub fn #ident(self, entries: impl ::core::convert::Into<#ty>) -> Self {
                let entries: #ty = entries.into();
                Self(self.0.patch(#name, &entries))
            }

            #remove_method
            #set_method
        },
        Rule::Messages => quote! {
            /// Adds a message, or replaces the one with its id.
            pub fn #one(self, message: impl ::core::convert::Into<<#ty as ::core::iter::IntoIterator>::Item>) -> Self {
                let message: <#ty as ::core::iter::IntoIterator>::Item = message.into();
                Self(self.0.put(#name, &[message]))
            }

            /// Adds messages, or replaces those with their ids.
            pub fn #ident(self, messages: impl ::core::convert::Into<#ty>) -> Self {
                let messages: #ty = messages.into();
                Self(self.0.put(#name, &messages))
            }

            #remove_method
            #set_method
        },
    }
}
