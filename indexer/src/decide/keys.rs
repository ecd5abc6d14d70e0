//! Block keys as what token ids are folded into, so that a memory of prompts is one of their keys.

use warmpath_kv::{KeyPart, KeyPlan, KeyState, Namespace, PromptKeys};
use warmpath_prompt::{Fold, Folded, Memo};

/// The memory of prompts that all decisions share.
pub type PromptMemo = Memo<KeyFold>;

/// Makes the keys of one prompt: a plan, and the namespace that the prompt is in.
#[derive(Debug)]
pub struct KeyFold {
    plan: KeyPlan,
    begin: KeyState,
    /// Equal for two folds that make equal keys.
    name: Vec<u8>,
}

// === impl KeyFold ===

impl KeyFold {
    pub(super) fn new(plan: KeyPlan, namespace: &Namespace<'_>) -> Self {
        let mut name = Vec::new();
        plan.identify(namespace, &mut name);
        Self { begin: plan.begin(namespace), plan, name }
    }

    /// The keys of a prompt that this fold has folded.
    pub(super) fn keys(&self, folded: &Folded<Self>) -> PromptKeys {
        self.plan.join(folded.parts())
    }
}

impl Fold for KeyFold {
    type State = KeyState;
    type Part = KeyPart;

    fn identify(&self, name: &mut Vec<u8>) {
        name.extend_from_slice(&self.name);
    }

    fn begin(&self) -> KeyState {
        self.begin.clone()
    }

    fn fold(&self, state: &mut KeyState, ids: &[u32]) -> KeyPart {
        self.plan.extend(state, ids)
    }

    fn owned_bytes(state: &KeyState, part: &KeyPart) -> usize {
        state.owned_bytes() + part.owned_bytes()
    }
}
