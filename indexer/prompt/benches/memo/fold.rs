//! Block keys of 16 tokens, as the indexer folds them.

use std::sync::LazyLock;

use warmpath_kv::event::{Batch, Event, Stored};
use warmpath_kv::index::Origin;
use warmpath_kv::{
    EngineHash, Index, IndexLimits, KeyHasher, KeyPart, KeyPlan, KeyState, Namespace, PromptKeys, StreamId,
};
use warmpath_prompt::{Fold, Folded};

pub(crate) const NAMESPACE: Namespace<'static> = Namespace { model: "m", lora: None, salt: None };

pub(crate) struct BlockKeys {
    plan: KeyPlan,
}

/// An index whose streams have blocks of 16 tokens.
static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index::new(KeyHasher::new([5; 16]), IndexLimits::default());
    let stream = StreamId(1);
    index.add_stream(stream, NAMESPACE.model);
    let stored =
        Stored { hashes: vec![EngineHash(1)], tokens: vec![0; 16], block_size: 16, ..Stored::default() };
    let batch = Batch { events: vec![Event::Stored(Box::new(stored))], ..Batch::default() };
    index.apply(stream, &batch, Origin::Published);
    index
});

pub(crate) fn plan() -> KeyPlan {
    INDEX.key_plan()
}

// === impl BlockKeys ===

impl BlockKeys {
    pub(crate) fn new() -> Self {
        BlockKeys { plan: plan() }
    }

    pub(crate) fn keys(&self, folded: &Folded<Self>) -> PromptKeys {
        self.plan.join(folded.parts())
    }
}

impl Fold for BlockKeys {
    type State = KeyState;
    type Part = KeyPart;

    fn identify(&self, name: &mut Vec<u8>) {
        self.plan.identify(&NAMESPACE, name);
    }

    fn begin(&self) -> KeyState {
        self.plan.begin(&NAMESPACE)
    }

    fn fold(&self, state: &mut KeyState, ids: &[u32]) -> KeyPart {
        self.plan.extend(state, ids)
    }

    fn owned_bytes(state: &KeyState, part: &KeyPart) -> usize {
        state.owned_bytes() + part.owned_bytes()
    }
}
