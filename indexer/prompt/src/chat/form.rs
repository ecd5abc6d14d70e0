//! The form that the messages of one request take.

use super::Origin;
use crate::template::ContentFormat;
use crate::version::RenderingRules;

/// What decides the form of messages, besides themselves.
pub(super) struct Form<'a> {
    pub rules: &'a RenderingRules,
    pub origin: Origin,
    pub content: ContentFormat,
    pub template_knows_developer: bool,
}
