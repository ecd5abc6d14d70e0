//! Names that the conversion gives to tools and their arguments, alike where they are offered and where they were called.

/// Between a namespace and a name in it.
const NAMESPACE_SEPARATOR: &str = "__";

/// The only argument that a custom tool has.
pub(super) const CUSTOM_INPUT: &str = "input";

/// The name that a tool in a namespace is offered under.
pub(super) fn flat(namespace: &str, name: &str) -> String {
    format!("{namespace}{NAMESPACE_SEPARATOR}{name}")
}

/// What a flat name calls in this namespace; `None`: it is of another one.
pub(super) fn inside<'a>(namespace: &str, flat: &'a str) -> Option<&'a str> {
    flat.strip_prefix(namespace)?.strip_prefix(NAMESPACE_SEPARATOR)
}
