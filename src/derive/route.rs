//! `#[derive(Route)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Path, Result, Variant, spanned::Spanned};

use crate::model::krate;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(input.span(), "Route can be derived for an enum whose variants name nodes"));
    };
    if data.variants.is_empty() {
        return Err(Error::new(input.span(), "a route needs at least one variant"));
    }
    let krate = krate(&input.attrs, "route", |meta| meta.error("unknown attribute of a route; there is: crate = \"path\""))?;
    let mut targets = Vec::new();
    let mut arms = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new(variant.span(), "a variant of a route holds no data: it names a node"));
        }
        let target = target(variant, &krate)?;
        let ident = &variant.ident;
        arms.push(quote!(Self::#ident => #target));
        targets.push(target);
    }
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics #krate::Route for #ident #type_generics #where_clause {
            const TARGETS: &'static [&'static str] = &[#(#targets),*];

            fn target(&self) -> &'static str {
                match self { #(#arms),* }
            }
        }
    })
}

fn target(variant: &Variant, krate: &Path) -> Result<TokenStream> {
    for attribute in &variant.attrs {
        if attribute.path().is_ident("route") {
            let name: LitStr = attribute.parse_args()?;
            return Ok(quote!(#name));
        }
    }
    let name = variant.ident.to_string();
    if name == "End" {
        return Ok(quote!(#krate::END));
    }
    let name = snake_case(&name);
    Ok(quote!(#name))
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for (index, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
