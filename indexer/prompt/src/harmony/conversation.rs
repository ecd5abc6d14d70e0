//! A conversation in the terms of the encoding, before it is written out.

use std::rc::Rc;

use super::tools::FunctionTool;

/// Everything that a prompt says; the generation prompt follows from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conversation {
    pub system: System,
    pub messages: Vec<Message>,
    /// The request came as a chat; see [`HarmonyRules::drops_all_analysis`](super::rules::HarmonyRules).
    pub is_chat: bool,
}

/// What the request says about the system message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct System {
    pub effort: Effort,
    /// The `commentary` channel is offered.
    pub has_commentary: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effort {
    Low,
    #[default]
    Medium,
    High,
}

/// One message after the system message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// Instructions and tools; the engine's own form of a developer message.
    Developer(Developer),
    /// A text of a role, in parts that are encoded one by one.
    Plain { role: &'static str, parts: Vec<String> },
    /// The assistant's own words.
    Said { channel: Channel, parts: Vec<String> },
    /// The assistant calls a function.
    Call { name: String, arguments: String },
    /// A function's answer. Many may be one function's, whose name is the client's to make long.
    Answer { name: Rc<str>, text: String },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Developer {
    /// Printed even where empty.
    pub instructions: Option<String>,
    pub tools: Vec<FunctionTool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Analysis,
    Commentary,
    Final,
}

// === impl Effort ===

impl Effort {
    /// `None`: the encoding has no such effort.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "low" => Some(Effort::Low),
            "medium" => Some(Effort::Medium),
            "high" => Some(Effort::High),
            _ => None,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        }
    }
}

// === impl Channel ===

impl Channel {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Channel::Analysis => "analysis",
            Channel::Commentary => "commentary",
            Channel::Final => "final",
        }
    }
}

// === impl Message ===

impl Message {
    pub(super) fn said(channel: Channel, text: impl Into<String>) -> Self {
        Message::Said { channel, parts: vec![text.into()] }
    }

    fn is_said_in(&self, channel: Channel) -> bool {
        matches!(self, Message::Said { channel: own, .. } if *own == channel)
    }

    fn is_of_assistant(&self) -> bool {
        matches!(self, Message::Said { .. } | Message::Call { .. })
    }
}

// === impl Conversation ===

impl Conversation {
    /// Whether functions are offered anywhere, which the system message mentions.
    pub(super) fn offers_functions(&self) -> bool {
        self.messages.iter().any(|message| match message {
            Message::Developer(developer) => !developer.tools.is_empty(),
            _ => false,
        })
    }

    /// Drops the reasoning of turns that came to an end: before the last final answer, or, in the older way, before the
    /// first one and only while nothing of the assistant follows the last.
    pub(super) fn drop_analysis(&mut self, before_last: bool) {
        let is_final = |message: &Message| message.is_said_in(Channel::Final);
        let end = if before_last {
            self.messages.iter().rposition(is_final)
        } else if self.messages.iter().rfind(|message| message.is_of_assistant()).is_some_and(is_final) {
            self.messages.iter().position(is_final)
        } else {
            None
        };
        let mut index = 0;
        self.messages.retain(|message| {
            let is_before = end.is_some_and(|end| index < end);
            index += 1;
            !(is_before && message.is_said_in(Channel::Analysis))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(channels: &str) -> Conversation {
        let messages = channels.chars().map(|channel| match channel {
            'a' => Message::said(Channel::Analysis, "a"),
            'c' => Message::Call { name: "f".into(), arguments: "{}".into() },
            'f' => Message::said(Channel::Final, "f"),
            _ => Message::Plain { role: "user", parts: Vec::new() },
        });
        Conversation { messages: messages.collect(), ..Conversation::default() }
    }

    #[test]
    fn analysis_goes_where_its_turn_has_ended() {
        for (given, before_last, by_first) in [
            ("ua", "ua", "ua"),
            ("uafu", "ufu", "ufu"),
            ("uafuafu", "ufufu", "ufuafu"),
            ("uafuac", "ufuac", "uafuac"),
            ("uac", "uac", "uac"),
        ] {
            for (is_new, want) in [(true, before_last), (false, by_first)] {
                let mut dropped = conversation(given);
                dropped.drop_analysis(is_new);
                assert_eq!(dropped, conversation(want), "{given} {is_new}");
            }
        }
    }
}
