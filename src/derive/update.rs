//! `#[derive(State)]`: the update type, with one operation per field.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::{Ident, Type};

use crate::fields::{Field, Rule};
use crate::model::Model;

pub(crate) fn update(model: &Model<'_>) -> TokenStream {
    let Model { input, krate, update, fields, .. } = model;
    let (ident, visibility, generics) = (&input.ident, &input.vis, &input.generics);
    let (impl_generics, type_generics, _) = generics.split_for_impl();
    let declared = model.where_clause([]);
    let bounded = model.where_clause(model.field_bounds());
    let parameters = model.type_parameters();
    let doc = format!("Changes of a [`{ident}`]: one operation per field. Start with `{ident}::update()`.");
    let methods = fields.iter().map(|field| methods(field, model));
    let constants = fields.iter().map(|field| constant(field, model));
    let conversions = conversions(model, &declared);
    quote! {
        #[automatically_derived]
        #[doc = #doc]
        #[must_use = "an update does nothing until a node returns it or a run takes it as input"]
        #visibility struct #update #generics (#krate::state::Update, ::core::marker::PhantomData<fn() -> (#(#parameters,)*)>)
        #declared;

        #[automatically_derived]
        impl #impl_generics #ident #type_generics #declared {
            /// An update that changes nothing yet.
            #[allow(dead_code, reason = "made for whoever needs it")]
            #visibility fn update() -> #update #type_generics {
                ::core::default::Default::default()
            }

            #(#constants)*
        }

        #[automatically_derived]
        #[allow(dead_code, reason = "made for whoever needs it")]
        impl #impl_generics #update #type_generics #bounded {
            #(#methods)*
        }

        #[automatically_derived]
        #[allow(dead_code, reason = "made for whoever needs it")]
        impl #impl_generics #update #type_generics #declared {
            /// The changes, unless a value was refused.
            #visibility fn into_changes(
                self,
            ) -> ::core::result::Result<::std::vec::Vec<#krate::state::Change>, #krate::state::ValueError> {
                self.0.into_changes()
            }
        }

        #conversions
    }
}

/// A field to hand to ready-made nodes.
fn constant(field: &Field<'_>, model: &Model<'_>) -> TokenStream {
    let (krate, visibility) = (&model.krate, &model.input.vis);
    let (name, ident, ty) = (&field.name, field.ident, field.ty);
    let constant = format_ident!("{}", name.to_uppercase());
    let doc = format!("The field `{name}`.");
    quote! {
        #[doc = #doc]
        #[allow(dead_code, reason = "made for whoever needs it")]
        #visibility const #constant: #krate::state::FieldRef<Self, #ty> =
            #krate::state::FieldRef::new(#name, |state: &Self| &state.#ident);
    }
}

/// What makes the update type one. By hand, since a derive would ask things of the state's parameters.
fn conversions(model: &Model<'_>, declared: &TokenStream) -> TokenStream {
    let Model { input, krate, update, .. } = model;
    let (ident, name) = (&input.ident, update.to_string());
    let (impl_generics, type_generics, _) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics ::core::clone::Clone for #update #type_generics #declared {
            fn clone(&self) -> Self {
                Self(::core::clone::Clone::clone(&self.0), ::core::marker::PhantomData)
            }
        }

        #[automatically_derived]
        impl #impl_generics ::core::fmt::Debug for #update #type_generics #declared {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_tuple(#name).field(&self.0).finish()
            }
        }

        #[automatically_derived]
        impl #impl_generics ::core::default::Default for #update #type_generics #declared {
            fn default() -> Self {
                Self(::core::default::Default::default(), ::core::marker::PhantomData)
            }
        }

        #[automatically_derived]
        impl #impl_generics #krate::IntoReturn<#ident #type_generics> for #update #type_generics #declared {
            fn into_return(self) -> #krate::__private::NodeReturn {
                #krate::__private::NodeReturn::update(self.0)
            }
        }

        #[automatically_derived]
        impl #impl_generics ::core::convert::From<#krate::state::Update> for #update #type_generics #declared {
            fn from(update: #krate::state::Update) -> Self {
                Self(update, ::core::marker::PhantomData)
            }
        }

        #[automatically_derived]
        impl #impl_generics ::core::convert::From<#update #type_generics> for #krate::state::Update #declared {
            fn from(update: #update #type_generics) -> Self {
                update.0
            }
        }
    }
}

/// What a method takes for a value of that type: a number as it is, so that `.limit(5)` needs no suffix, anything else by `Into`.
fn value_type(ty: &Type) -> TokenStream {
    const PLAIN: [&str; 15] =
        ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64", "bool"];
    let plain = name_of(ty).is_some_and(|ident| PLAIN.iter().any(|name| ident == name));
    if plain { quote!(#ty) } else { quote!(impl ::core::convert::Into<#ty>) }
}

/// The type's name, if it is a name alone.
fn name_of(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

/// The methods of the update type for one field.
fn methods(field: &Field<'_>, model: &Model<'_>) -> TokenStream {
    let span = field.span();
    let krate = model.krate_at(span);
    let (name, ident, ty) = (&field.name, field.ident, field.ty);
    // A parameter under a rule for numbers is a number.
    let is_number = matches!(field.rule, Rule::Sum | Rule::Max | Rule::Min)
        && name_of(ty).is_some_and(|name| model.type_parameters().any(|parameter| parameter == name));
    let value = if is_number { quote!(#ty) } else { value_type(ty) };
    let one = format_ident!("{}", field.singular);
    let set = format_ident!("set_{name}");
    let remove = format_ident!("remove_{name}");
    let set_method = quote_spanned! {span=>
        /// Replaces the whole field, whatever else the step does to it.
        pub fn #set(self, value: impl ::core::convert::Into<#ty>) -> Self {
            let value: #ty = value.into();
            self.0.overwrite(#name, &value).into()
        }
    };
    let remove_method = quote_spanned! {span=>
        /// Removes entries.
        pub fn #remove<K: ::core::convert::Into<::std::string::String>>(
            self,
            keys: impl ::core::iter::IntoIterator<Item = K>,
        ) -> Self {
            self.0.remove(#name, keys.into_iter().map(::core::convert::Into::into)).into()
        }
    };
    match &field.rule {
        Rule::Replace => quote_spanned! {span=>
            /// Sets the field.
            pub fn #ident(self, value: #value) -> Self {
                let value: #ty = value.into();
                self.0.set(#name, &value).into()
            }
        },
        Rule::Sum | Rule::Max | Rule::Min => quote_spanned! {span=>
            /// Adds an operand to what the step makes of the field.
            pub fn #ident(self, operand: #value) -> Self {
                let operand: #ty = operand.into();
                self.0.combine(#name, &operand).into()
            }

            #set_method
        },
        Rule::With(with) => {
            let operand = with.operand.as_ref().unwrap_or(ty);
            let value = value_type(operand);
            quote_spanned! {span=>
                /// Hands an operand to the field's merge function.
                pub fn #ident(self, operand: #value) -> Self {
                    let operand: #operand = operand.into();
                    self.0.combine(#name, &operand).into()
                }

                #set_method
            }
        }
        Rule::Append => quote_spanned! {span=>
            /// Adds one item at the end.
            pub fn #one(self, item: impl ::core::convert::Into<<#ty as #krate::state::typed::AppendField>::Item>) -> Self {
                #krate::state::typed::append_one(self.0, #name, item).into()
            }

            /// Adds items at the end.
            pub fn #ident(self, items: impl ::core::convert::Into<#ty>) -> Self {
                let items: #ty = items.into();
                self.0.append(#name, &items).into()
            }

            #set_method
        },
        Rule::Merge => quote_spanned! {span=>
            /// Sets one key.
            pub fn #one(
                self,
                key: impl ::core::convert::Into<::std::string::String>,
                item: impl ::core::convert::Into<<#ty as #krate::state::typed::MergeField>::Item>,
            ) -> Self {
                #krate::state::typed::patch_one(self.0, #name, key.into(), item).into()
            }

            /// Sets keys.
            pub fn #ident(self, entries: impl ::core::convert::Into<#ty>) -> Self {
                let entries: #ty = entries.into();
                self.0.patch(#name, &entries).into()
            }

            #remove_method
            #set_method
        },
        Rule::Messages => quote_spanned! {span=>
            /// Adds a message, or replaces the one with its id.
            pub fn #one(self, message: impl ::core::convert::Into<<#ty as #krate::state::typed::MessagesField>::Item>) -> Self {
                #krate::state::typed::put_one(self.0, #name, message).into()
            }

            /// Adds messages, or replaces those with their ids.
            pub fn #ident(self, messages: impl ::core::convert::Into<#ty>) -> Self {
                let messages: #ty = messages.into();
                self.0.put(#name, &messages).into()
            }

            #remove_method
            #set_method
        },
    }
}
