//! `#[derive(Route)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Path, Result, Variant, spanned::Spanned};

use crate::fields::all;
use crate::model::settings;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(input.ident.span(), "a route is an enum: each of its variants names a node"));
    };
    if data.variants.is_empty() {
        return Err(Error::new(input.ident.span(), "a route leads somewhere: give it a variant for each node, or `End`"));
    }
    let unknown = "unknown attribute of a route; there is: crate = \"path\"; a node's name belongs on a variant";
    let krate = settings(&input.attrs, "route", &["crate"], unknown)?.krate;
    let targets = all(data.variants.iter().map(|variant| target(variant, &krate)))?;
    let variants = data.variants.iter().map(|variant| &variant.ident);
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics #krate::Route for #ident #type_generics #where_clause {
            const TARGETS: &'static [&'static str] = &[#(#targets),*];

            fn target(&self) -> &'static str {
                match self { #(Self::#variants => #targets),* }
            }
        }
    })
}

/// The node that a variant names.
fn target(variant: &Variant, krate: &Path) -> Result<TokenStream> {
    if !matches!(variant.fields, Fields::Unit) {
        let what =
            "a variant of a route names a node and holds no data; what the node needs belongs in the state, or in a fan-out";
        return Err(Error::new(variant.ident.span(), what));
    }
    let mut given: Option<LitStr> = None;
    for attribute in variant.attrs.iter().filter(|attribute| attribute.path().is_ident("route")) {
        let span = attribute.path().span();
        let name = attribute.parse_args().map_err(|_| Error::new(span, "write the node's name: #[route(\"name\")]"))?;
        if given.replace(name).is_some() {
            return Err(Error::new(span, "a variant names one node: remove this name, or the other"));
        }
    }
    if let Some(name) = given {
        return Ok(quote!(#name));
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
