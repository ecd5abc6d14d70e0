//! Prompt → tokens → block keys: the long part of a decision, done before any lock is taken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use warmpath_core::outcome;
use warmpath_kv::index::Reader;
use warmpath_kv::{Namespace, PromptKeys};
use warmpath_prompt::{
    CompletionRequest, Folded, MessagesRequest, Prepared, PromptRequest, PromptTokens, ResponsesRequest,
    Task, Tenant, TokensRequest, Truncate,
};

use super::keys::{KeyFold, PromptMemo};
use super::metrics::DecideMetrics;
use super::{Members, Prompt, Question, Reason};
use crate::models::Model;
use crate::volatile::VolatileHeads;

/// Bytes of text per token, where nothing better is known: English prose and code have 3.5 to 4.5.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// Everything that measuring needs, shared with the pool's threads.
#[derive(Debug)]
pub(super) struct Measurer {
    pub(super) memo: Arc<PromptMemo>,
    pub(super) cached: Reader,
    pub(super) volatile: Arc<VolatileHeads>,
    pub(super) metrics: DecideMetrics,
}

/// What is known of a prompt.
#[derive(Debug)]
pub(super) struct Measured {
    /// As far as they are known.
    pub(super) prompt_tokens: u32,
    /// Tokens of the request's further prompts; estimated where they are text.
    pub(super) further_tokens: u64,
    /// The only prompt of its request. Of several, an engine reports a sum that nothing can be held against.
    pub(super) single: bool,
    /// We made the tokens of a text, and an engine that made others is of another mind. Of ids that the client gave,
    /// and of requests whose usage does not count the whole prompt, nothing can be learnt.
    pub(super) is_ours: bool,
    /// Why the tokens are those of the prompt's beginning only.
    pub(super) cut_by: Option<Reason>,
    pub(super) keys: Arc<PromptKeys>,
    /// The ids that the keys were made of, where the job keeps them.
    pub(super) ids: Option<Vec<u32>>,
}

/// The part of a question that measuring consumes.
pub(super) struct Job {
    /// As it was when the question came, whatever is reloaded meanwhile.
    pub(super) model: Arc<Model>,
    /// The adapter that the request names: a namespace of its own.
    pub(super) adapter: Option<Arc<str>>,
    pub(super) prompt: Prompt,
    pub(super) cache_salt: Option<String>,
    pub(super) task: Task,
    pub(super) add_special_tokens: Option<bool>,
    pub(super) truncate: Truncate,
    /// The ids are wanted too, so that all of the prompt is encoded, whatever of it is remembered.
    pub(super) keeps_ids: bool,
    /// It is a client's: its text is looked at for what changes at the head of every prompt.
    pub(super) is_served: bool,
    /// When nobody waits for the result any more: no further stage is begun then.
    pub(super) give_up_at: Option<tokio::time::Instant>,
}

// === impl Measured ===

impl Measured {
    /// Its tokens are all that the engine computes for the request.
    pub(super) fn is_all_of_its_request(&self) -> bool {
        self.single && self.cut_by.is_none()
    }
}

// === impl Job ===

impl Job {
    /// What measuring needs of `question`, which keeps the rest.
    pub(super) fn take(question: &mut Question, model: Arc<Model>, adapter: Option<Arc<str>>) -> Self {
        Self {
            model,
            adapter,
            prompt: std::mem::replace(&mut question.prompt, Prompt::Tokens(Vec::new())),
            cache_salt: question.cache_salt.take(),
            task: question.task,
            add_special_tokens: question.add_special_tokens,
            truncate: question.truncate,
            keeps_ids: false,
            is_served: true,
            give_up_at: None,
        }
    }
}

// === impl Measurer ===

impl Measurer {
    /// Like [`Self::measure`], on a thread that must live on whatever happens.
    pub(super) fn measure_here(&self, job: Job) -> Result<Measured, Reason> {
        catch_unwind(AssertUnwindSafe(|| self.measure(job))).unwrap_or(Err(Reason::Failed))
    }

    /// Runs the whole of it on the calling thread.
    pub(super) fn measure(&self, mut job: Job) -> Result<Measured, Reason> {
        let (single, is_ours) = (job.prompt.count() == 1, job.prompt.is_counted_by_usage());
        let further_tokens = job.prompt.further_tokens();
        let model = job.model.clone();
        let (lora, salt) = (job.adapter.clone(), job.cache_salt.clone());
        let namespace = Namespace { model: &model.name, lora: lora.as_deref(), salt: salt.as_deref() };
        let fold = KeyFold::new(self.cached.key_plan(), &namespace);
        let begun = Instant::now();
        let (folded, ids) = self.fold(&mut job, &fold)?;
        let tokenized = Instant::now();
        self.metrics.tokenize.observe((tokenized - begun).as_secs_f64());
        in_time(job.give_up_at)?;

        let keys = fold.keys(&folded);
        self.metrics.keys.observe(tokenized.elapsed().as_secs_f64());
        Ok(Measured {
            prompt_tokens: u32::try_from(folded.tokens()).unwrap_or(u32::MAX),
            further_tokens,
            single,
            is_ours,
            cut_by: (!folded.whole).then_some(Reason::Filter(outcome::Reason::Media)),
            keys: Arc::new(keys),
            ids,
        })
    }

    /// The tokens of the first prompt, as they are folded into keys, and as they are where the job keeps them.
    fn fold(&self, job: &mut Job, fold: &KeyFold) -> Result<(Folded<KeyFold>, Option<Vec<u32>>), Reason> {
        let tenant = job.cache_salt.as_deref().map_or(Tenant::Common, Tenant::Salted);
        let renderer = job.model.renderer.as_deref();
        let (task, special, truncate) = (job.task, job.add_special_tokens, job.truncate);
        let request: PromptRequest<'_> = match &mut job.prompt {
            Prompt::Absent(reason) => return Err(*reason),
            Prompt::Tokens(prompts) => {
                let ids = prompts.first_mut().map(std::mem::take).unwrap_or_default();
                if truncate.tokens.is_none() {
                    return Ok(folded(fold, PromptTokens::whole(ids), job.keeps_ids));
                }
                TokensRequest { ids, truncate, task }.into()
            }
            Prompt::Texts(texts) => {
                let text = texts.first().map_or("", String::as_str);
                CompletionRequest { text, add_special_tokens: special, truncate, task }.into()
            }
            Prompt::Chat(chat) => chat.request(task, special, truncate).into(),
            Prompt::Responses(Members { members, has_media }) => {
                let max_output_tokens = truncate.max_output_tokens;
                ResponsesRequest { members, max_output_tokens, has_media: *has_media }.into()
            }
            Prompt::Messages(Members { members, has_media }) => {
                MessagesRequest { members, has_media: *has_media }.into()
            }
        };
        let reason = if job.model.is_loaded { Reason::NoTokenizer } else { Reason::Starting };
        let renderer = renderer.ok_or(reason)?;
        let prepared = renderer.prepare(request).map_err(|error| Reason::from(&error))?;
        in_time(job.give_up_at)?;
        if let Prepared::Text(prepared) = &prepared
            && job.is_served
        {
            self.volatile.see(&job.model.name, prepared.text());
        }
        if job.keeps_ids {
            let tokens = renderer.encode(prepared).map_err(|error| Reason::from(&error))?;
            return Ok(folded(fold, tokens, true));
        }
        let remembered = renderer.fold(prepared, &self.memo, tenant, fold);
        Ok((remembered.map_err(|error| Reason::from(&error))?, None))
    }
}

fn folded(fold: &KeyFold, tokens: PromptTokens, keeps_ids: bool) -> (Folded<KeyFold>, Option<Vec<u32>>) {
    let folded = Folded::of(fold, &tokens);
    (folded, keeps_ids.then(|| tokens.ids.into_vec()))
}

/// Between two stages: nothing more is done for nobody.
fn in_time(give_up_at: Option<tokio::time::Instant>) -> Result<(), Reason> {
    match give_up_at {
        Some(at) if at <= tokio::time::Instant::now() => Err(Reason::Late),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use warmpath_kv::{Index, IndexLimits, KeyHasher};

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::decide::Chat;
    use crate::models::Models;
    use crate::test_model::Folder;

    /// What measures, a model, and a chat with it.
    fn measuring(folder: &Folder) -> (Measurer, impl Fn(&str) -> Job) {
        let yaml = format!("models: [{{ name: tiny, tokenizer_dir: {:?} }}]", folder.path());
        let models = Models::load(&Config::parse(&yaml).unwrap().models).unwrap();
        let model = models.get(crate::fleet::ModelIndex(0)).unwrap().clone();
        let hasher = KeyHasher::new([0; 16]);
        let cached = Index::new(hasher, IndexLimits::default()).reader();
        let volatile = Arc::new(VolatileHeads::new(Clock::start()));
        let memo = Arc::new(PromptMemo::new([0; 16], 1 << 20));
        let job = move |messages: &str| Job {
            model: model.clone(),
            adapter: None,
            prompt: Prompt::Chat(Box::new(Chat { messages: messages.into(), ..Chat::default() })),
            cache_salt: None,
            add_special_tokens: None,
            task: Task::Generate,
            truncate: Truncate::default(),
            keeps_ids: false,
            is_served: true,
            give_up_at: None,
        };
        (Measurer { memo, cached, volatile, metrics: DecideMetrics::new() }, job)
    }

    /// Work of which nobody waits for the result ends at the next stage: a chat that cannot be rendered says so, one
    /// that can is not tokenized.
    #[test]
    fn what_runs_past_its_deadline_stops_at_the_next_stage() {
        let folder = Folder::new("measure-late");
        let (measurer, job) = measuring(&folder);
        let job = |messages: &str, give_up_at| Job { give_up_at, ..job(messages) };
        let good = r#"[{"role":"user","content":"a b"}]"#;
        let past = Some(tokio::time::Instant::now());
        assert!(measurer.measure(job(good, None)).unwrap().prompt_tokens > 2);
        assert_eq!(measurer.measure(job(good, past)).unwrap_err(), Reason::Late);
        assert_eq!(measurer.measure(job("{", past)).unwrap_err().name(), "bad_prompt");
    }
    /// A nonce in front of every prompt is found in what clients send, and nowhere else.
    #[test]
    fn what_is_only_explained_says_nothing_of_clients() {
        let folder = Folder::new("measure-explained");
        let (measurer, job) = measuring(&folder);
        let see = |is_served| {
            for nonce in 0..100 {
                let text = format!("{nonce:08} {}", "the same for all ".repeat(200));
                let messages = serde_json::json!([{ "role": "user", "content": text }]).to_string();
                measurer.measure(Job { is_served, ..job(&messages) }).unwrap();
            }
            measurer.volatile.named().len()
        };
        assert_eq!(see(false), 0);
        assert_eq!(see(true), 1);
    }
}
