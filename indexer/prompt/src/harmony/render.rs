//! A conversation written out as special tokens and texts.

use super::conversation::{Channel, Conversation, Message};
use super::pieces::{Pieces, Special};
use super::rules::HarmonyRules;
use super::system::{developer_text, system_text};
use crate::error::PromptError;

/// `date` as the system message prints it. Ends with the head of the assistant's next message.
pub(super) fn render(
    rules: &HarmonyRules,
    mut conversation: Conversation,
    date: &str,
) -> Result<Pieces, PromptError> {
    conversation.drop_analysis(rules.drops_all_analysis || conversation.is_chat);
    let mut pieces = Pieces::default();
    open(&mut pieces, "system")?;
    pieces.special(Special::Message)?;
    pieces.text(system_text(conversation.system, date, conversation.offers_functions()))?;
    pieces.special(Special::End)?;
    for message in conversation.messages {
        write(rules, message, &mut pieces)?;
    }
    open(&mut pieces, "assistant")?;
    Ok(pieces)
}

fn open(pieces: &mut Pieces, author: &str) -> Result<(), PromptError> {
    pieces.special(Special::Start)?;
    pieces.text(author)
}

fn write(rules: &HarmonyRules, message: Message, pieces: &mut Pieces) -> Result<(), PromptError> {
    match message {
        Message::Developer(developer) => {
            open(pieces, "developer")?;
            close(pieces, [developer_text(&developer)?], Special::End)
        }
        Message::Plain { role, parts } => {
            open(pieces, role)?;
            close(pieces, parts, Special::End)
        }
        Message::Said { channel, parts } => {
            open(pieces, "assistant")?;
            in_channel(pieces, channel)?;
            close(pieces, parts, Special::End)
        }
        Message::Call { name, arguments } => {
            open(pieces, "assistant")?;
            pieces.text(format!(" to=functions.{name}"))?;
            in_channel(pieces, Channel::Commentary)?;
            pieces.text(" json")?;
            close(pieces, [arguments], Special::Call)
        }
        Message::Answer { name, text } => {
            const RECIPIENT: &str = " to=assistant";
            open(pieces, &format!("functions.{name}"))?;
            if !rules.recipient_behind_channel {
                pieces.text(RECIPIENT)?;
            }
            in_channel(pieces, Channel::Commentary)?;
            if rules.recipient_behind_channel {
                pieces.text(RECIPIENT)?;
            }
            close(pieces, [text], Special::End)
        }
    }
}

fn in_channel(pieces: &mut Pieces, channel: Channel) -> Result<(), PromptError> {
    pieces.special(Special::Channel)?;
    pieces.text(channel.as_str())
}

fn close(
    pieces: &mut Pieces,
    parts: impl IntoIterator<Item = String>,
    end: Special,
) -> Result<(), PromptError> {
    pieces.special(Special::Message)?;
    parts.into_iter().try_for_each(|part| pieces.text(part))?;
    pieces.special(end)
}
