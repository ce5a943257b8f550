//! Reads the fields of a state struct and their attributes.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Fields, FieldsNamed, Ident, LitStr, Result, Type, TypePath};

use crate::model::quoted;

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

    /// Name of what applies a change.
    pub(crate) fn function(&self) -> &'static str {
        match self {
            Self::Replace | Self::With(_) => "replace",
            Self::Sum | Self::Max | Self::Min => "number",
            Self::Append => "append",
            Self::Merge => "merge",
            Self::Messages => "messages",
        }
    }
}

pub(crate) struct Field<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) ty: &'a Type,
    pub(crate) rule: Rule,
    /// Whether its values are secrets.
    pub(crate) secret: bool,
    /// The field's name in the log.
    pub(crate) name: String,
    /// What a method that takes one item is called.
    pub(crate) singular: String,
}

impl Field<'_> {
    /// Where to tell what the field's type cannot do. It is known to be in code that a macro made.
    pub(crate) fn span(&self) -> Span {
        let first = self.ty.to_token_stream().into_iter().next();
        Span::call_site().located_at(first.map_or_else(|| self.ident.span(), |token| token.span()))
    }
}

pub(crate) fn read(input: &DeriveInput) -> Result<Vec<Field<'_>>> {
    let what = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(named) => return read_named(input, named),
            Fields::Unnamed(_) => "a state's fields are stored under their names: give them names",
            Fields::Unit => "a state has fields: write the struct with braces, and what the thread knows between them",
        },
        Data::Enum(_) | Data::Union(_) => "a state is a struct with named fields; this can be the type of one of them",
    };
    Err(Error::new(input.ident.span(), what))
}

fn read_named<'a>(input: &'a DeriveInput, named: &'a FieldsNamed) -> Result<Vec<Field<'a>>> {
    let refused = ["rename_all", "rename_all_fields", "transparent", "from", "into", "try_from"];
    if let Some(span) = serde_attribute(&input.attrs, &refused) {
        return Err(Error::new(span, "a state's fields are stored under their Rust names; remove this attribute"));
    }
    let names: Vec<String> = named.named.iter().filter_map(|f| f.ident.as_ref()).map(|i| i.unraw().to_string()).collect();
    all(named.named.iter().map(|field| read_one(field, &names)))
}

/// All values, or all errors.
pub(crate) fn all<T>(results: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    let mut errors: Option<Error> = None;
    for result in results {
        match (result, &mut errors) {
            (Ok(value), _) => found.push(value),
            (Err(error), Some(errors)) => errors.combine(error),
            (Err(error), None) => errors = Some(error),
        }
    }
    errors.map_or(Ok(found), Err)
}

fn read_one<'a>(field: &'a syn::Field, names: &[String]) -> Result<Field<'a>> {
    let ident = field.ident.as_ref().expect("fields of a struct with named fields have names");
    let refused =
        ["rename", "flatten", "skip", "skip_serializing", "skip_deserializing", "with", "serialize_with", "deserialize_with"];
    if let Some(span) = serde_attribute(&field.attrs, &refused) {
        let what = "a state's field is stored under its Rust name, as its type says: remove this attribute, or give the field a type of \
                    your own that is stored as you want it";
        return Err(Error::new(span, what));
    }
    let name = ident.unraw().to_string();
    let singular = match name.strip_suffix('s') {
        Some(one) if !one.is_empty() && !names.iter().any(|n| n == one) && syn::parse_str::<Ident>(one).is_ok() => one.to_owned(),
        _ => format!("push_{name}"),
    };
    let (rule, secret) = attributes(field)?;
    Ok(Field { ident, ty: &field.ty, rule, secret, name, singular })
}

/// The merge rule, and whether the values are secrets.
fn attributes(field: &syn::Field) -> Result<(Rule, bool)> {
    let mut rule = None;
    let mut operand = None;
    let mut secret = false;
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
                Some("secret") => {
                    secret = true;
                    return Ok(());
                }
                Some("operand") => {
                    let text = quoted(&meta, "String")?;
                    let no_type = |_| Error::new(text.span(), "this is no type; write, for example, operand = \"String\"");
                    let ty = text.parse().map_err(no_type)?;
                    return match operand.replace((meta.path.span(), ty)) {
                        Some(_) => Err(meta.error("a merge function takes one operand")),
                        None => Ok(()),
                    };
                }
                _ => {
                    return Err(meta.error(
                        "unknown merge rule; there are: replace, append, merge, messages, sum, max, min, with = \"path::to::function\"; and the \
                         mark secret",
                    ));
                }
            };
            match rule.replace(new) {
                Some(_) => Err(meta.error("a field has one merge rule: remove this one, or the other")),
                None => Ok(()),
            }
        })?;
    }
    match (rule.unwrap_or(Rule::Replace), operand) {
        (Rule::With(mut with), operand) => {
            with.operand = operand.map(|(_, ty)| ty);
            Ok((Rule::With(with), secret))
        }
        (_, Some((span, _))) => Err(Error::new(span, "an operand goes with a function: add with = \"path::to::function\"")),
        (rule, None) => Ok((rule, secret)),
    }
}

fn with(meta: &ParseNestedMeta<'_>) -> Result<With> {
    let name = quoted(meta, "path::to::function")?;
    let no_path =
        |_| Error::new(name.span(), "this is no path of a function; what is stored is its name, so a closure will not do");
    let path = name.parse().map_err(no_path)?;
    Ok(With { path, name, operand: None })
}

/// Where serde is told one of these.
fn serde_attribute(attributes: &[Attribute], names: &[&str]) -> Option<Span> {
    let mut found = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("serde")) {
        // What is wrong with an attribute of serde's is serde's to say.
        let _ = attribute.parse_nested_meta(|meta| {
            if found.is_none() && names.iter().any(|name| meta.path.is_ident(name)) {
                found = Some(meta.path.span());
            }
            if meta.input.peek(syn::Token![=]) {
                let _: syn::Expr = meta.value()?.parse()?;
            } else if meta.input.peek(syn::token::Paren) {
                let inner;
                syn::parenthesized!(inner in meta.input);
                let _: TokenStream = inner.parse()?;
            }
            Ok(())
        });
    }
    found
}
