//! Recordings of real servers: the steps of a scenario, each with the messages that it caused.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use engine_emulator::core::Lora;
use rmpv::Value as Msg;
use serde_json::Value;

use crate::events::{self, Event, StoredRun};

/// One recorded request, made of what the engine saw.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fed {
    pub(crate) prompt: Vec<u32>,
    pub(crate) output: Vec<u32>,
    pub(crate) salt: Option<String>,
    pub(crate) lora: Option<Lora>,
    pub(crate) embeds: Vec<Vec<u8>>,
    pub(crate) session: Option<String>,
    pub(crate) skips_cache: bool,
    pub(crate) reports_hits: bool,
}

/// What happened in a step.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// Requests, at the same moment, at one replica or rank.
    Serve { replica: usize, requests: Vec<Fed> },
    /// Groups of requests at the only replica, each group at its own moment.
    Stagger(Vec<(Start, Vec<Fed>)>),
    /// The cache was reset that many times.
    Reset { times: usize },
    /// A request was sent and the cache reset before it ended.
    ResetUnder(Fed),
    /// The server was restarted.
    Restart,
    /// Nothing that concerns the engine.
    Nothing,
    /// A request whose tokens were not recorded and cannot be found in the events.
    NotFed,
}

/// When a group of requests comes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    /// While the step before is computed, so that it joins the one after it.
    DuringStep,
    /// When everything before is done.
    Idle,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) action: Action,
    /// By replica, the messages recorded until the next step.
    pub(crate) messages: Vec<Vec<Vec<Event>>>,
    /// Tokens found cached, and looked for, as the engine's own counters say.
    pub(crate) hits: Option<u64>,
    pub(crate) queries: Option<u64>,
    pub(crate) preemptions: Option<u64>,
}

/// Requests whose tokens are nowhere but in the events: prompt and output length.
const HIDDEN: (usize, usize) = (100, 300);
const LONG: (usize, usize) = (200, 500);
/// Of six prompts three are different; they share this many tokens, which are whole blocks.
const SHARED: usize = 256;
const SIX_OUTPUT: usize = 8;
/// Largest block size recorded: so many tokens at the end of a prompt may be in no block.
const MOST_BLOCK: usize = 32;
/// Stands for output tokens that were not recorded and end in no published block.
const FILLER: u32 = 7;

pub(crate) fn read_lines(path: &Path) -> Vec<Value> {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The messages of one stream, each as its events.
fn messages(path: &Path) -> Vec<Vec<Event>> {
    let lines = read_lines(path);
    let published = lines.iter().filter(|line| line["src"] == "pub");
    published.map(|line| events::decode(&from_hex(line["frames"][2].as_str().unwrap()))).collect()
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// All steps of a scenario; `stem` names its files without their endings.
pub(crate) fn steps(stem: &Path) -> Vec<Step> {
    let with = |ending: &str| {
        let mut name = stem.as_os_str().to_owned();
        name.push(ending);
        std::path::PathBuf::from(name)
    };
    let mut streams = vec![messages(&with(".events.jsonl.gz"))];
    if with(".events.1.jsonl.gz").exists() {
        streams.push(messages(&with(".events.1.jsonl.gz")));
    }
    let (records, are_requests) = match with(".jsonl.gz").exists() {
        true => (read_lines(&with(".jsonl.gz")), true),
        false => (read_lines(&with(".steps.jsonl.gz")), false),
    };
    let newer = match are_requests {
        true => read_lines(&newest(stem)),
        false => Vec::new(),
    };
    let mut seen = vec![0; streams.len()];
    let mut reader =
        Reader { streams, content: HashMap::new(), embeds: HashMap::new(), loras: Vec::new(), newer };
    let mut steps = Vec::new();
    for record in &records {
        let until: Vec<usize> = if are_requests {
            vec![seen[0] + record["event_messages"].as_u64().unwrap() as usize]
        } else {
            match &record["event_messages_so_far"] {
                Value::Array(list) => list.iter().map(|count| count.as_u64().unwrap() as usize).collect(),
                count => vec![count.as_u64().unwrap() as usize],
            }
        };
        steps.push(reader.step(record, &seen, &until));
        seen = until;
    }
    let total: Vec<usize> = reader.streams.iter().map(Vec::len).collect();
    assert_eq!(seen, total, "{}: every message belongs to a step", stem.display());
    steps
}

/// The requests of the same folder in the newest recording.
fn newest(stem: &Path) -> std::path::PathBuf {
    let folder = stem.parent().and_then(Path::file_name).unwrap();
    stem.ancestors().nth(3).unwrap().join("vllm-0.32.0").join(folder).join("requests.jsonl.gz")
}

struct Reader {
    streams: Vec<Vec<Vec<Event>>>,
    /// By block hash: what it was stored with.
    content: HashMap<Vec<u8>, (Option<Msg>, Vec<u32>)>,
    /// By the base64 text of prompt embeddings: tokens and digests published for them.
    embeds: HashMap<String, (Vec<u32>, Vec<Vec<u8>>)>,
    loras: Vec<String>,
    /// The same requests as a newer release got them.
    newer: Vec<Value>,
}

impl Reader {
    fn step(&mut self, record: &Value, from: &[usize], until: &[usize]) -> Step {
        let name = record["step"].as_str().or(record["id"].as_str()).unwrap().to_owned();
        let messages: Vec<Vec<Vec<Event>>> = self
            .streams
            .iter()
            .zip(from.iter().zip(until))
            .map(|(s, (from, to))| s[*from..*to].to_vec())
            .collect();
        let replica = replica(&name, record, &messages);
        let action = self.action(&name, record, replica, from[replica], &messages[replica]);
        for run in messages.iter().flatten().flatten().filter_map(events::stored) {
            self.remember(&run);
        }
        let number = |value: &Value| value.as_f64().map(|number| number as u64);
        let (hits, queries) = match record.get("metrics_delta") {
            Some(delta) => {
                (number(&delta["vllm:prefix_cache_hits"]), number(&delta["vllm:prefix_cache_queries"]))
            }
            None => (number(&record["hits"]), number(&record["queries"])),
        };
        let preemptions = number(&record["preemptions"]);
        Step { name, action, messages, hits, queries, preemptions }
    }

    fn action(
        &mut self,
        name: &str,
        record: &Value,
        replica: usize,
        from: usize,
        messages: &[Vec<Event>],
    ) -> Action {
        match name {
            "server up again" => return Action::Restart,
            "reset while idle (waited 2 s)" => return Action::Reset { times: 1 },
            "reset twice while idle" => return Action::Reset { times: 2 },
            "reset while a request runs" => {
                return Action::ResetUnder(self.hidden(&self.streams[replica][from..], HIDDEN));
            }
            _ if name.starts_with("six concurrent requests") => return six(messages),
            _ if name.starts_with("five long generations") => return self.five(messages),
            _ => {}
        }
        let is_request =
            record.get("path").is_some_and(|path| path.as_str().is_some()) || name_of_prompt(record);
        let path = record["path"].as_str().unwrap_or_default();
        if !is_request || record["status"] != 200 || path == "/v1/load_lora_adapter" {
            return Action::Nothing;
        }
        let body = &record["body"];
        let Some(mut requests) = self.tokens(record, messages, replica, from) else { return Action::NotFed };
        let session = body["session_id"].as_str().or(record["headers"]["X-Session-ID"].as_str());
        for request in &mut requests {
            request.salt = body["cache_salt"].as_str().map(str::to_owned);
            request.lora =
                body["model"].as_str().filter(|model| *model != "tiny").map(|model| self.lora(model));
            request.session = session.map(str::to_owned);
            request.skips_cache = body.get("prompt_logprobs").is_some();
            request.reports_hits = body["vllm_xargs"]["kv_cache_report_mode"] == "full";
        }
        Action::Serve { replica, requests }
    }

    /// Prompt and output tokens of the requests of a record.
    fn tokens(
        &mut self,
        record: &Value,
        messages: &[Vec<Event>],
        replica: usize,
        from: usize,
    ) -> Option<Vec<Fed>> {
        let body = &record["body"];
        if let Some(embeds) = body["prompt_embeds"].as_str() {
            return Some(vec![self.embedded(embeds, record, messages)]);
        }
        let outputs = lists(&record["output_token_ids"]);
        let prompts = match &record["prompt_token_ids"] {
            Value::String(_) => lists(&body["prompt"]),
            prompt => lists(prompt),
        };
        if !prompts.is_empty() {
            let count = record["usage"]["completion_tokens"].as_u64().unwrap_or(0) as usize;
            let filler = vec![FILLER; count];
            let both = prompts.iter().enumerate().map(|(i, prompt)| Fed {
                prompt: prompt.clone(),
                output: outputs.get(i).unwrap_or(&filler).clone(),
                ..Fed::default()
            });
            return Some(both.collect());
        }
        // Not recorded: the queries counter tells the prompt's length, the events its blocks.
        let prompt = record["metrics_delta"]["vllm:prefix_cache_queries"].as_f64()? as usize;
        let output = record["usage"]["output_tokens"].as_u64()? as usize;
        let mut tokens = self.chain(&self.streams[replica][from..from + messages.len()], prompt + output);
        if let Some(rendered) = self.rendered(record, prompt).filter(|rendered| rendered.len() > tokens.len())
        {
            tokens = rendered;
        }
        let known = tokens.len() + MOST_BLOCK >= prompt;
        known.then(|| vec![fed(tokens, prompt, output)])
    }

    /// What the server's own rendering gave for a request; older releases have none, then a newer one's if the length
    /// is the same.
    fn rendered(&self, record: &Value, prompt: usize) -> Option<Vec<u32>> {
        let own = lists(&record["render_token_ids"]);
        let newer = self.newer.iter().find(|other| other["id"] == record["id"]);
        let newer = newer.map(|other| lists(&other["render_token_ids"])).unwrap_or_default();
        own.into_iter().chain(newer).find(|tokens| tokens.len() == prompt)
    }

    /// A prompt of embeddings: the tokens and digests published for it, the first time or now.
    fn embedded(&mut self, embeds: &str, record: &Value, messages: &[Vec<Event>]) -> Fed {
        let published = messages.iter().flatten().find_map(|event| {
            let keys = events::field(event, "extra_keys")?.as_array()?.iter();
            let digests =
                keys.map(|block| block.as_array().unwrap()[0].as_slice().unwrap().to_vec()).collect();
            Some((events::stored(event)?.tokens, digests))
        });
        if let Some(published) = published {
            self.embeds.insert(embeds.to_owned(), published);
        }
        let (tokens, digests) = self.embeds[embeds].clone();
        let usage = |name: &str| record["usage"][name].as_u64().unwrap() as usize;
        let request = fed(tokens, usage("prompt_tokens"), usage("completion_tokens"));
        Fed { embeds: digests, ..request }
    }

    /// A request known only by the chain of blocks that these messages begin with.
    fn hidden(&self, messages: &[Vec<Event>], (prompt, output): (usize, usize)) -> Fed {
        fed(self.chain(messages, prompt + output), prompt, output)
    }

    /// Five prompts that grow until blocks run out. Two were in the first step, the others in the second.
    fn five(&self, messages: &[Vec<Event>]) -> Action {
        let all: Vec<Event> = messages.iter().flatten().cloned().collect();
        let is_root = |event: &Event| events::stored(event).is_some_and(|run| run.parent.is_none());
        let roots = all.iter().enumerate().filter(|(_, event)| is_root(event)).map(|(position, _)| position);
        let mut requests: Vec<Fed> =
            roots.take(5).map(|root| self.hidden(&[all[root..].to_vec()], LONG)).collect();
        let later = requests.split_off(2);
        Action::Stagger(vec![(Start::Idle, requests), (Start::DuringStep, later)])
    }

    /// The tokens of the first chain that these messages store, with what came before it, up to `most`.
    fn chain(&self, messages: &[Vec<Event>], most: usize) -> Vec<u32> {
        let mut runs = messages.iter().flatten().filter_map(events::stored);
        let Some(first) = runs.next() else { return Vec::new() };
        let mut tokens = first.tokens.clone();
        let mut parent = first.parent.clone();
        while let Some(hash) = &parent {
            let (before, content) = &self.content[&key(hash)];
            tokens.splice(0..0, content.iter().copied());
            parent = before.clone();
        }
        let mut last = first.hashes.last().cloned();
        for run in runs {
            if run.parent.is_some() && run.parent == last && tokens.len() + run.tokens.len() <= most {
                tokens.extend(run.tokens);
                last = run.hashes.last().cloned();
            }
        }
        tokens
    }

    fn remember(&mut self, run: &StoredRun) {
        let size = run.tokens.len() / run.hashes.len().max(1);
        let mut parent = run.parent.clone();
        for (hash, tokens) in run.hashes.iter().zip(run.tokens.chunks(size.max(1))) {
            self.content.insert(key(hash), (parent, tokens.to_vec()));
            parent = Some(hash.clone());
        }
    }

    fn lora(&mut self, name: &str) -> Lora {
        if !self.loras.iter().any(|known| known == name) {
            self.loras.push(name.to_owned());
        }
        let position = self.loras.iter().position(|known| known == name).unwrap();
        Lora { id: position as u64 + 1, name: name.to_owned() }
    }
}

/// Three prompts, each twice. The events tell when each came: the first alone, the second and both thirds during its
/// first step, and the repetitions of the second and the first when nothing else ran any more.
fn six(messages: &[Vec<Event>]) -> Action {
    let runs: Vec<StoredRun> = messages.iter().flatten().filter_map(events::stored).collect();
    let first = &runs[0].tokens;
    let request = |own: &[u32]| fed([&first[..SHARED], own].concat(), first.len(), SIX_OUTPUT);
    let (a, b, c) = (request(&first[SHARED..]), request(&runs[1].tokens), request(&runs[2].tokens));
    Action::Stagger(vec![
        (Start::Idle, vec![a.clone()]),
        (Start::DuringStep, vec![b.clone(), c.clone(), c]),
        (Start::Idle, vec![b]),
        (Start::Idle, vec![a]),
    ])
}

fn fed(mut tokens: Vec<u32>, prompt: usize, output: usize) -> Fed {
    tokens.resize(prompt + output, FILLER);
    let output = tokens.split_off(prompt);
    Fed { prompt: tokens, output, ..Fed::default() }
}

/// Steps of the plain scenarios have no path and body; a prompt shows that they are requests.
fn name_of_prompt(record: &Value) -> bool {
    record["prompt_token_ids"].is_array()
}

/// Which replica or rank served: named by the header, by the step, or shown by its messages.
fn replica(name: &str, record: &Value, messages: &[Vec<Vec<Event>>]) -> usize {
    if messages.len() == 1 {
        return 0;
    }
    if let Some(rank) = record["headers"]["X-data-parallel-rank"].as_str() {
        return rank.parse().unwrap();
    }
    if name.starts_with("r1 ") {
        return 1;
    }
    messages.iter().position(|messages| !messages.is_empty()).unwrap_or(0)
}

/// One list of token ids or several, as several.
fn lists(value: &Value) -> Vec<Vec<u32>> {
    let list = |value: &Value| -> Option<Vec<u32>> {
        value.as_array()?.iter().map(|token| token.as_u64().map(|token| token as u32)).collect()
    };
    match list(value) {
        Some(one) => vec![one],
        None => value.as_array().map(|many| many.iter().filter_map(list).collect()).unwrap_or_default(),
    }
}

fn key(hash: &Msg) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, hash).unwrap();
    bytes
}
