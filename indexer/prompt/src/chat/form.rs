//! The form that the messages of one request take.

use super::Origin;
use crate::template::ContentFormat;
use crate::values::Values;
use crate::version::RenderingRules;

/// What decides the form of messages, besides themselves.
pub(super) struct Form<'a> {
    pub rules: &'a RenderingRules,
    /// Of the request, to which the arguments of calls are added.
    pub values: &'a Values,
    pub origin: Origin,
    pub content: ContentFormat,
    pub template_knows_developer: bool,
}
