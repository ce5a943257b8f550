//! What both derives read first, and what the code for a state is made from.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Error, GenericParam, Ident, LitInt, LitStr, Meta, Path, Result, parse_quote};

use crate::fields::{self, Field, Rule};

/// A state struct.
pub(crate) struct Model<'a> {
    pub(crate) input: &'a DeriveInput,
    /// How the crate ferrata is called here.
    pub(crate) krate: Path,
    /// The version of the state, if it says one.
    pub(crate) version: Option<u32>,
    /// Name of the update type.
    pub(crate) update: Ident,
    pub(crate) fields: Vec<Field<'a>>,
    /// Type and constant parameters.
    parameters: Vec<&'a Ident>,
}

impl<'a> Model<'a> {
    pub(crate) fn read(input: &'a DeriveInput) -> Result<Self> {
        let unknown = "unknown attribute of a state; there are: version = 2, crate = \"path\"; a merge rule belongs on a field";
        let Settings { krate, version } = settings(&input.attrs, "state", &["crate", "version"], unknown)?;
        let mut parameters = Vec::new();
        for parameter in &input.generics.params {
            match parameter {
                GenericParam::Lifetime(lifetime) => {
                    return Err(Error::new(
                        lifetime.span(),
                        "a state owns its data, since it outlives every run: remove the lifetime",
                    ));
                }
                GenericParam::Type(parameter) => parameters.push(&parameter.ident),
                GenericParam::Const(parameter) => parameters.push(&parameter.ident),
            }
        }
        let update = format_ident!("{}Update", input.ident);
        Ok(Self { input, krate, version, update, fields: fields::read(input)?, parameters })
    }

    /// Its name for code that is about one place, where the compiler then points.
    pub(crate) fn krate_at(&self, span: Span) -> TokenStream {
        let tokens = self.krate.to_token_stream().into_iter();
        tokens
            .map(|mut token| {
                token.set_span(token.span().located_at(span));
                token
            })
            .collect()
    }

    /// The types that take part in the update type.
    pub(crate) fn type_parameters(&self) -> impl Iterator<Item = &'a Ident> {
        self.input.generics.type_params().map(|parameter| &parameter.ident)
    }

    /// What the struct asks of its parameters, and what `more` asks beyond that. A struct without parameters needs none of it: what
    /// its types cannot do is told where they are used.
    pub(crate) fn where_clause(&self, more: impl IntoIterator<Item = TokenStream>) -> TokenStream {
        let declared = self.input.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
        let more = more.into_iter().filter(|_| !self.parameters.is_empty());
        let predicates: Vec<_> = declared.map(ToTokens::to_token_stream).chain(more).collect();
        if predicates.is_empty() { TokenStream::new() } else { quote!(where #(#predicates),*) }
    }

    /// What the whole has to be, to be a state.
    pub(crate) fn state_bounds(&self) -> Vec<TokenStream> {
        let krate = &self.krate;
        let whole = quote! {
            Self: ::core::clone::Clone
                + ::core::default::Default
                + #krate::state::typed::StoredState
                + ::core::marker::Send
                + ::core::marker::Sync
        };
        let owned = self.type_parameters().map(|parameter| quote!(#parameter: 'static));
        owned.chain([whole]).chain(self.field_bounds()).collect()
    }

    /// What the merge rules ask of the fields whose types depend on a parameter.
    pub(crate) fn field_bounds(&self) -> Vec<TokenStream> {
        let krate = &self.krate;
        let mut bounds = Vec::new();
        for field in &self.fields {
            let (ty, bound) = (field.ty, field.rule.bound());
            if self.depends(ty) {
                bounds.push(quote!(#ty: #krate::state::typed::#bound));
            }
            if let Rule::With(with) = &field.rule
                && let Some(operand) = with.operand.as_ref().filter(|operand| self.depends(operand))
            {
                bounds.push(quote!(#operand: #krate::state::typed::StoredField));
            }
        }
        bounds
    }

    fn depends(&self, ty: &impl ToTokens) -> bool {
        fn mentions(tokens: TokenStream, names: &[&Ident]) -> bool {
            tokens.into_iter().any(|token| match token {
                TokenTree::Ident(ident) => names.iter().any(|name| **name == ident),
                TokenTree::Group(group) => mentions(group.stream(), names),
                _ => false,
            })
        }
        !self.parameters.is_empty() && mentions(ty.to_token_stream(), &self.parameters)
    }
}

/// What a whole type says of itself.
pub(crate) struct Settings {
    /// How the crate ferrata is called.
    pub(crate) krate: Path,
    pub(crate) version: Option<u32>,
}

/// What stands in `#[state(..)]` or `#[route(..)]` on the whole type, of what is `known` there. Whatever else stands there is an error.
pub(crate) fn settings(attributes: &[Attribute], name: &str, known: &[&str], unknown: &str) -> Result<Settings> {
    let (mut krate, mut version) = (None, None);
    for attribute in attributes.iter().filter(|a| a.path().is_ident(name)) {
        let Meta::List(list) = &attribute.meta else { return Err(Error::new(attribute.path().span(), unknown)) };
        let first = list.tokens.clone().into_iter().next().map(|token| token.to_string());
        if first.is_none_or(|first| !known.contains(&&*first)) {
            return Err(Error::new(list.tokens.span(), unknown));
        }
        attribute.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().map(ToString::to_string).filter(|word| known.contains(&&**word));
            match word.as_deref() {
                Some("crate") => match krate.replace(krate_path(&meta)?) {
                    Some(_) => Err(meta.error("ferrata has one path")),
                    None => Ok(()),
                },
                Some("version") => match version.replace(number(&meta)?) {
                    Some(_) => Err(meta.error("a state has one version")),
                    None => Ok(()),
                },
                _ => Err(meta.error(unknown)),
            }
        })?;
    }
    Ok(Settings { krate: krate.unwrap_or_else(|| parse_quote!(::ferrata)), version })
}

fn krate_path(meta: &ParseNestedMeta<'_>) -> Result<Path> {
    let path = quoted(meta, "::path::to::ferrata")?;
    path.parse_with(Path::parse_mod_style).map_err(|_| Error::new(path.span(), "this is no path of a crate"))
}

fn number(meta: &ParseNestedMeta<'_>) -> Result<u32> {
    let hint = "write the version as a number from 1 on: version = 2";
    let number: LitInt = meta.value().and_then(|value| value.parse()).map_err(|error| Error::new(error.span(), hint))?;
    number.base10_parse().ok().filter(|version| *version > 0).ok_or_else(|| Error::new(number.span(), hint))
}

/// The text behind an attribute's `=`.
pub(crate) fn quoted(meta: &ParseNestedMeta<'_>, example: &str) -> Result<LitStr> {
    let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
    let text = meta.value().and_then(|value| value.parse::<LitStr>());
    text.map_err(|error| Error::new(error.span(), format!("write it in quotes: {name} = \"{example}\"")))
}
