//! Events in MessagePack, as vLLM writes them: arrays up to 0.23, maps from 0.24 on.

use crate::cache::Change;

/// How one process writes its events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) is_map: bool,
    /// Whole digests instead of integers.
    pub(crate) has_digests: bool,
}

/// Name, and what writes the value.
type Field<'a> = (&'static str, &'a dyn Fn(&mut Vec<u8>));

pub(crate) fn batch(form: Form, made_at: f64, changes: &[Change]) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(made_at.to_be_bytes());
    array(&mut out, changes.len());
    for change in changes {
        match change {
            Change::Stored { hashes, parent, tokens } => {
                let fields: [Field<'_>; 6] = [
                    ("block_hashes", &|out| {
                        array(out, hashes.len());
                        hashes.iter().for_each(|value| hash(out, form, *value));
                    }),
                    ("parent_block_hash", &|out| match parent {
                        Some(parent) => hash(out, form, *parent),
                        None => out.push(NIL),
                    }),
                    ("token_ids", &|out| {
                        array(out, tokens.len());
                        tokens.iter().for_each(|token| uint(out, u64::from(*token)));
                    }),
                    ("block_size", &|out| uint(out, 2)),
                    ("lora_id", &|out| out.push(NIL)),
                    ("medium", &|out| text(out, "GPU")),
                ];
                event(&mut out, form, "BlockStored", &fields);
            }
            Change::Removed { hash: gone } => {
                let fields: [Field<'_>; 2] = [
                    ("block_hashes", &|out| {
                        array(out, 1);
                        hash(out, form, *gone);
                    }),
                    ("medium", &|out| text(out, "GPU")),
                ];
                event(&mut out, form, "BlockRemoved", &fields);
            }
            Change::Cleared => event(&mut out, form, "AllBlocksCleared", &[]),
        }
    }
    out.push(0);
    out
}

const NIL: u8 = 0xc0;

fn event(out: &mut Vec<u8>, form: Form, kind: &str, fields: &[Field<'_>]) {
    if form.is_map {
        out.push(0x80 | short(fields.len() + 1));
        text(out, "type");
        text(out, kind);
        for (name, write) in fields {
            text(out, name);
            write(out);
        }
    } else {
        array(out, fields.len() + 1);
        text(out, kind);
        fields.iter().for_each(|(_, write)| write(out));
    }
}

fn hash(out: &mut Vec<u8>, form: Form, value: u64) {
    if form.has_digests {
        out.extend([0xc4, 32]);
        out.extend([7; 24]);
        out.extend(value.to_be_bytes());
    } else {
        uint(out, value);
    }
}

fn uint(out: &mut Vec<u8>, value: u64) {
    out.push(0xcf);
    out.extend(value.to_be_bytes());
}

fn text(out: &mut Vec<u8>, value: &str) {
    out.extend([0xd9, u8::try_from(value.len()).expect("short")]);
    out.extend(value.as_bytes());
}

fn array(out: &mut Vec<u8>, length: usize) {
    out.push(0xdc);
    out.extend(u16::try_from(length).expect("short").to_be_bytes());
}

fn short(length: usize) -> u8 {
    u8::try_from(length).ok().filter(|length| *length < 16).expect("few")
}
