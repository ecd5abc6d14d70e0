//! Prompts of an exact length in tokens.
//!
//! Every word here, with the space before it, is one token of the qwen3 tokenizer (a case checks it), so a text of n
//! words has n tokens and any prefix of it that ends at a word is a prefix of its tokens too.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use crate::client::Call;
use crate::stack::MODEL;

const WORDS: &str = "
river stone window garden mountain letter market summer winter bridge forest island village castle
harbor engine signal copper silver golden marble valley desert ocean planet rocket mirror candle basket
ladder hammer needle thread button pocket jacket blanket pillow carpet table chair bottle kettle spoon
knife plate butter cheese bread apple orange lemon cherry banana potato tomato carrot pepper onion
garlic sugar coffee dinner lunch breakfast kitchen doctor teacher farmer sailor soldier painter writer
singer dancer driver pilot captain lawyer banker baker tailor hunter miner guard prince queen knight
dragon tiger lion eagle rabbit horse camel monkey spider turtle salmon whale shark dolphin cotton
leather paper pencil rubber plastic metal wooden glass brick cement gravel timber tower palace temple
church school library museum theater station airport highway tunnel canal stream jungle swamp glacier
volcano thunder lightning rain snow storm cloud shadow sunrise evening morning midnight autumn spring
season century decade moment minute second number figure circle square triangle corner border center
middle bottom surface edge point line angle degree measure weight height length width depth volume speed
power energy force pressure heat light sound color music rhythm melody chorus drum guitar piano violin
trumpet flute story novel poem chapter legend history science physics biology medicine law justice
freedom peace victory battle treaty nation country city town street avenue park
";

/// A text of `tokens` tokens, always the same for the same seed.
pub fn text(seed: u64, tokens: usize) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut text = String::new();
    for _ in 0..tokens {
        text.push(' ');
        text.extend(words.get(random.random_range(0..words.len())).copied());
    }
    text
}

/// Every word once, in the order of the list.
pub fn every_word() -> String {
    WORDS.split_whitespace().map(|word| format!(" {word}")).collect()
}

/// A completion of this prompt: a text, token ids, or lists of them.
pub fn completion(prompt: impl Into<Value>) -> Call {
    Call::json("/v1/completions", &json!({ "model": MODEL, "prompt": prompt.into(), "max_tokens": 2 }))
}

/// A chat completion of these messages.
pub fn chat(messages: Value) -> Call {
    Call::json("/v1/chat/completions", &json!({ "model": MODEL, "messages": messages, "max_tokens": 2 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_decided_by_its_seed() {
        assert_eq!(text(1, 50), text(1, 50));
        assert_ne!(text(1, 50), text(2, 50));
        assert_eq!(text(1, 50).split_whitespace().count(), 50);
    }
}
