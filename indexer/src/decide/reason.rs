//! Why a request was ranked by load only, or by a part of its prompt: one closed set of names, used as metric label, log field and answer.

use warmpath_core::outcome;
use warmpath_prompt::PromptError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The filter sent no prompt and said why.
    Filter(outcome::Reason),
    /// Only the endpoint that keeps the earlier response can answer.
    PreviousResponse,
    /// Nobody knows which endpoint keeps it, or that one cannot be used.
    PreviousResponseUnknown,
    /// The request's model is none of the configured ones.
    UnknownModel,
    /// The model is configured without a tokenizer, and the prompt is not given as token ids.
    NoTokenizer,
    /// The program has just started, and the model's files are still being loaded.
    Starting,
    /// The prompt's tokens cannot be known.
    Prompt(PromptReason),
    /// The prompt is no longer than one block, of which nothing can be reused.
    BelowBlock,
    /// No stream of a candidate endpoint can be believed at the moment, or none is configured.
    NoEvents,
    /// Too many prompts wait for a tokenizer.
    Busy,
    /// The prompt could not be tokenized in time.
    Late,
    /// Tokenizing broke down: a defect of ours.
    Failed,
}

/// The name that `warmpath-prompt` gives its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptReason(&'static str);

impl Reason {
    /// Its name in metrics, logs and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filter(reason) => reason.name(),
            Self::PreviousResponse => "previous_response",
            Self::PreviousResponseUnknown => "previous_response_unknown",
            Self::UnknownModel => "unknown_model",
            Self::NoTokenizer => "no_tokenizer",
            Self::Starting => "starting",
            Self::Prompt(PromptReason(name)) => name,
            Self::BelowBlock => "below_block",
            Self::NoEvents => "no_events",
            Self::Busy => "busy",
            Self::Late => "late",
            Self::Failed => "failed",
        }
    }
}

impl From<&PromptError> for Reason {
    fn from(error: &PromptError) -> Self {
        Self::Prompt(PromptReason(error.reason()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every reason that begins here; those of the filter are in its own README.
    fn own() -> Vec<Reason> {
        let media = Reason::Filter(outcome::Reason::Media);
        let prompt = PromptError::REASONS.map(|name| Reason::Prompt(PromptReason(name)));
        let mut all = vec![
            media,
            Reason::PreviousResponse,
            Reason::PreviousResponseUnknown,
            Reason::UnknownModel,
            Reason::NoTokenizer,
            Reason::Starting,
            Reason::BelowBlock,
            Reason::NoEvents,
            Reason::Busy,
            Reason::Late,
            Reason::Failed,
        ];
        all.extend(prompt);
        for reason in &all {
            // A new reason stops the build here, and belongs into the list above.
            match reason {
                Reason::Filter(_) | Reason::PreviousResponse | Reason::PreviousResponseUnknown => {}
                Reason::UnknownModel | Reason::NoTokenizer | Reason::Prompt(_) | Reason::BelowBlock => {}
                Reason::NoEvents | Reason::Starting | Reason::Busy | Reason::Late | Reason::Failed => {}
            }
        }
        all
    }

    #[test]
    fn the_readme_lists_every_reason_and_no_other() {
        let readme = include_str!("../../README.md");
        let (_, section) = readme.split_once("## Why a request is ranked by load only").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let listed: BTreeSet<&str> = rows.map(|(name, _)| name).collect();
        let given: BTreeSet<&str> = own().into_iter().map(Reason::name).collect();
        assert_eq!(listed, given);
    }
}
