//! Reads the fields of a state struct and their attributes.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, LitStr, Result, Type, TypePath};

use crate::model::quoted;

/// The words for merge rules.
pub(crate) const RULES: [&str; 8] = ["replace", "append", "merge", "messages", "sum", "max", "min", "with"];

pub(crate) enum Rule {
    Replace,
    Append,
    Merge,
    Messages,
    Sum,
    Max,
    Min,
    /// A function of the user's.
    With(Box<With>),
}

pub(crate) struct With {
    /// The path as it is written: the text that is stored.
    pub(crate) name: LitStr,
    pub(crate) path: TypePath,
    /// What it takes beside the field's value; absent if it is of the field's own type.
    pub(crate) operand: Option<Type>,
}

impl Rule {
    /// What the schema holds; absent for a function.
    pub(crate) fn variant(&self) -> Option<TokenStream> {
        Some(match self {
            Self::Replace => quote!(Replace),
            Self::Append => quote!(Append),
            Self::Merge => quote!(Merge),
            Self::Messages => quote!(Messages),
            Self::Sum => quote!(Sum),
            Self::Max => quote!(Max),
            Self::Min => quote!(Min),
            Self::With(_) => return None,
        })
    }

    /// The trait of the types that it works on.
    pub(crate) fn bound(&self) -> TokenStream {
        match self {
            Self::Replace | Self::With(_) => quote!(StoredField),
            Self::Append => quote!(AppendField),
            Self::Merge => quote!(MergeField),
            Self::Messages => quote!(MessagesField),
            Self::Sum | Self::Max | Self::Min => quote!(NumberField),
        }
    }

    /// What applies a change.
    pub(crate) fn function(&self) -> TokenStream {
        match self {
            Self::Replace | Self::With(_) => quote!(replace),
            Self::Sum | Self::Max | Self::Min => quote!(number),
            Self::Append => quote!(append),
            Self::Merge => quote!(merge),
            Self::Messages => quote!(messages),
        }
    }
}

pub(crate) struct Field<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) ty: &'a Type,
    pub(crate) rule: Rule,
    /// The field's name in the log.
    pub(crate) name: String,
    /// What a method that takes one item is called.
    pub(crate) singular: String,
}

pub(crate) fn read(input: &DeriveInput) -> Result<Vec<Field<'_>>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "State can be derived for a struct with named fields"));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new(input.span(), "State can be derived for a struct with named fields"));
    };
    if let Some(attribute) = serde_attribute(&input.attrs, &["rename_all", "transparent", "from", "into", "try_from"]) {
        return Err(Error::new(attribute.span(), "a state's fields are stored under their Rust names; remove this attribute"));
    }
    let names: Vec<String> = named.named.iter().filter_map(|f| f.ident.as_ref()).map(|i| i.unraw().to_string()).collect();
    named.named.iter().map(|field| read_one(field, &names)).collect()
}

fn read_one<'a>(field: &'a syn::Field, names: &[String]) -> Result<Field<'a>> {
    let ident = field.ident.as_ref().expect("fields of a struct with named fields have names");
    let refused =
        ["rename", "flatten", "skip", "skip_serializing", "skip_deserializing", "with", "serialize_with", "deserialize_with"];
    if let Some(attribute) = serde_attribute(&field.attrs, &refused) {
        let text = "a state's field is stored as it is, under its Rust name; wrap its type instead of using this attribute";
        return Err(Error::new(attribute.span(), text));
    }
    let name = ident.unraw().to_string();
    let singular = match name.strip_suffix('s') {
        Some(one) if !one.is_empty() && !names.iter().any(|n| n == one) && syn::parse_str::<Ident>(one).is_ok() => one.to_owned(),
        _ => format!("push_{name}"),
    };
    Ok(Field { ident, ty: &field.ty, rule: rule(field)?, name, singular })
}

fn rule(field: &syn::Field) -> Result<Rule> {
    let mut rule = None;
    let mut operand = None;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("state")) {
        attribute.parse_nested_meta(|meta| {
            let new = match meta.path.get_ident().map(ToString::to_string).as_deref() {
                Some("replace") => Rule::Replace,
                Some("append") => Rule::Append,
                Some("merge") => Rule::Merge,
                Some("messages") => Rule::Messages,
                Some("sum") => Rule::Sum,
                Some("max") => Rule::Max,
                Some("min") => Rule::Min,
                Some("with") => Rule::With(Box::new(with(&meta)?)),
                Some("operand") => {
                    let ty = quoted(&meta, "String")?.parse()?;
                    return match operand.replace((meta.path.span(), ty)) {
                        Some(_) => Err(meta.error("a merge function takes one operand")),
                        None => Ok(()),
                    };
                }
                _ => {
                    return Err(meta.error(
                        "unknown merge rule; there are: replace, append, merge, messages, sum, max, min, with = \"path::to::function\"",
                    ));
                }
            };
            match rule.replace(new) {
                Some(_) => Err(meta.error("a field has one merge rule")),
                None => Ok(()),
            }
        })?;
    }
    match (rule.unwrap_or(Rule::Replace), operand) {
        (Rule::With(mut with), operand) => {
            with.operand = operand.map(|(_, ty)| ty);
            Ok(Rule::With(with))
        }
        (_, Some((span, _))) => Err(Error::new(span, "an operand goes with a function: add with = \"path::to::function\"")),
        (rule, None) => Ok(rule),
    }
}

fn with(meta: &ParseNestedMeta<'_>) -> Result<With> {
    let name = quoted(meta, "path::to::function")?;
    let path = name.parse().map_err(|_| Error::new(name.span(), "this is no path of a function"))?;
    Ok(With { path, name, operand: None })
}

fn serde_attribute<'a>(attributes: &'a [Attribute], names: &[&str]) -> Option<&'a Attribute> {
    attributes.iter().filter(|a| a.path().is_ident("serde")).find(|attribute| {
        let mut found = false;
        let _ = attribute.parse_nested_meta(|meta| {
            found |= names.iter().any(|name| meta.path.is_ident(name));
            if meta.input.peek(syn::Token![=]) {
                let _: syn::Expr = meta.value()?.parse()?;
            }
            Ok(())
        });
        found
    })
}
