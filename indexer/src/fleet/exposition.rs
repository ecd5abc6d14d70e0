//! Reads the few families that matter out of an engine's Prometheus exposition. Pure.
//!
//! An exposition has hundreds of lines; only those of the wanted families are looked at, and a line that cannot be read
//! is skipped without losing the others.

/// What one rank's engine says of itself; a family it does not have stays None.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineFigures {
    /// Sequences being computed.
    pub running: Option<f64>,
    /// Sequences waiting for memory or their turn.
    pub waiting: Option<f64>,
    /// Share of the KV cache in use by running sequences, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Blocks of the KV cache, in use or not.
    pub kv_blocks: Option<f64>,
    /// Tokens per block, as the engine was started with.
    pub block_tokens: Option<f64>,
    /// Tokens that the KV cache has room for, in use or not.
    pub kv_tokens: Option<f64>,
    /// It sleeps, without its cache.
    pub is_asleep: Option<bool>,
}

/// Which figure a family gives.
type Field = fn(&mut EngineFigures) -> &mut Option<f64>;

/// Families, and the field each one fills: of vLLM, where the `gpu_` name is that of releases before 0.10, and of SGLang.
const FAMILIES: [(&str, Field); 9] = [
    ("vllm:num_requests_running", |figures| &mut figures.running),
    ("vllm:num_requests_waiting", |figures| &mut figures.waiting),
    ("vllm:kv_cache_usage_perc", |figures| &mut figures.kv_usage),
    ("vllm:gpu_cache_usage_perc", |figures| &mut figures.kv_usage),
    ("sglang:num_running_reqs", |figures| &mut figures.running),
    ("sglang:num_queue_reqs", |figures| &mut figures.waiting),
    ("sglang:token_usage", |figures| &mut figures.kv_usage),
    ("sglang:max_total_num_tokens", |figures| &mut figures.kv_tokens),
    ("sglang:page_size", |figures| &mut figures.block_tokens),
];

/// The labels that tell the rank: of vLLM, and of SGLang.
const RANK_LABELS: [&str; 2] = ["engine", "dp_rank"];

/// Largest figure taken: far above the sequences or blocks of any engine, far below what sums could overflow with.
const FIGURE_MAX: f64 = 1e9;

/// A family whose value is always 1; what it tells is in its labels.
const CACHE_CONFIG: &str = "vllm:cache_config_info";

/// A family with a line for each state of sleep, 1 for the one that holds.
const SLEEP_STATE: &str = "vllm:engine_sleep_state";

/// The figures of each rank, `ranks` of them. The rank is the label `engine`; without it the line is of rank 0.
/// Lines of the same family and rank (one per model name, say) add up.
pub fn parse(text: &str, ranks: usize) -> Vec<EngineFigures> {
    let mut figures = vec![EngineFigures::default(); ranks];
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix(CACHE_CONFIG) {
            read_cache_config(rest, &mut figures);
            continue;
        }
        if let Some(rest) = line.strip_prefix(SLEEP_STATE) {
            read_sleep_state(rest, &mut figures);
            continue;
        }
        let Some((field, rank, value)) = read_line(line) else { continue };
        if let Some(of_rank) = figures.get_mut(rank) {
            let slot = field(of_rank);
            *slot = Some((slot.unwrap_or(0.0) + value).min(FIGURE_MAX));
        }
    }
    figures
}

/// `name{label="value",…} number`, where the name is one of ours and the number can be a figure of an engine.
fn read_line(line: &str) -> Option<(Field, usize, f64)> {
    let (name, field) = FAMILIES.iter().find(|(name, _)| line.starts_with(name))?;
    let rest = line.get(name.len()..)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(labelled) => labelled.rsplit_once('}')?,
        None if rest.starts_with([' ', '\t']) => ("", rest),
        None => return None,
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((*field, rank_of(labels)?, sane(value)?))
}

/// The labels of [`CACHE_CONFIG`] tell sizes.
fn read_cache_config(rest: &str, figures: &mut [EngineFigures]) -> Option<()> {
    let (labels, _) = rest.strip_prefix('{')?.rsplit_once('}')?;
    let of_rank = figures.get_mut(rank_of(labels)?)?;
    let size = |name| label(labels, name)?.parse().ok().and_then(sane);
    of_rank.kv_blocks = size("num_gpu_blocks").or(of_rank.kv_blocks);
    of_rank.block_tokens = size("block_size").or(of_rank.block_tokens);
    Some(())
}

fn read_sleep_state(rest: &str, figures: &mut [EngineFigures]) -> Option<()> {
    let (labels, rest) = rest.strip_prefix('{')?.rsplit_once('}')?;
    let of_rank = figures.get_mut(rank_of(labels)?)?;
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    if label(labels, "sleep_state")? == "awake" {
        of_rank.is_asleep = Some(value == 0.0);
    }
    Some(())
}

fn sane(value: f64) -> Option<f64> {
    (0.0..=FIGURE_MAX).contains(&value).then_some(value)
}

/// None: a rank that is no number.
fn rank_of(labels: &str) -> Option<usize> {
    match RANK_LABELS.into_iter().find_map(|name| label(labels, name)) {
        Some(rank) => rank.parse().ok(),
        None => Some(0),
    }
}

/// The value of a label that holds no comma.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels
        .split(',')
        .find_map(|label| label.trim().strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_wanted_families_of_every_rank() {
        let text = r#"# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="qwen3"} 3.0
vllm:num_requests_running{engine="1",model_name="a, b}"} 4.0
vllm:num_requests_waiting{engine="1",model_name="qwen3"} 2.0
vllm:num_requests_waiting_by_reason{engine="1",model_name="qwen3"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="qwen3"} 0.25
vllm:cache_config_info{block_size="16",engine="1",num_cpu_blocks="None",num_gpu_blocks="4096"} 1.0
python_gc_objects_collected_total{generation="0"} 9382.0
"#;
        let figures = parse(text, 2);
        let first = EngineFigures { running: Some(3.0), kv_usage: Some(0.25), ..EngineFigures::default() };
        let second = EngineFigures {
            running: Some(4.0),
            waiting: Some(2.0),
            kv_blocks: Some(4096.0),
            block_tokens: Some(16.0),
            ..EngineFigures::default()
        };
        assert_eq!(figures, [first, second]);
    }

    #[test]
    fn reads_the_other_engine_s_families() {
        let text = r#"# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{dp_rank="1",engine_type="unified",model_name="m",tp_rank="0"} 7.0
sglang:num_running_reqs_offline_batch{dp_rank="1",model_name="m"} 9.0
sglang:num_queue_reqs{dp_rank="1",model_name="m"} 2.0
sglang:token_usage{dp_rank="1",model_name="m"} 0.4
sglang:max_total_num_tokens{dp_rank="1",model_name="m"} 65536.0
sglang:num_running_reqs{model_name="m"} 1.0
"#;
        let expected = EngineFigures {
            running: Some(7.0),
            waiting: Some(2.0),
            kv_usage: Some(0.4),
            kv_tokens: Some(65_536.0),
            ..EngineFigures::default()
        };
        let first = EngineFigures { running: Some(1.0), ..EngineFigures::default() };
        assert_eq!(parse(text, 2), [first, expected]);
    }

    #[test]
    fn an_engine_sleeps_where_it_says_that_it_is_not_awake() {
        let text = r#"vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 0.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0
vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="discard_all"} 0.0
vllm:engine_sleep_state{engine="2",model_name="m",sleep_state="awake"} x
vllm:engine_sleep_state_created{engine="2",model_name="m",sleep_state="awake"} 0.0
"#;
        let asleep: Vec<_> = parse(text, 3).iter().map(|figures| figures.is_asleep).collect();
        assert_eq!(asleep, [Some(true), Some(false), None]);
    }

    #[test]
    fn figures_that_no_engine_can_have_are_not_taken() {
        for absurd in ["1e300", "18446744073709551615", "inf", "-1", "-inf", "NaN"] {
            assert_eq!(parse(&format!("vllm:num_requests_running {absurd}"), 1), [EngineFigures::default()]);
        }
        let many = "vllm:num_requests_running 1e9\n".repeat(3);
        assert_eq!(parse(&many, 1)[0].running, Some(FIGURE_MAX));
    }

    #[test]
    fn old_names_missing_labels_and_broken_lines() {
        let text = "vllm:gpu_cache_usage_perc 0.5 1700000000\nvllm:num_requests_running NaN\n\
                    vllm:num_requests_waiting{engine=\"x\"} 1\nvllm:num_requests_waiting{engine=\"7\"} 1\n\
                    vllm:num_requests_running{\nvllm:num_requests_waiting 2";
        assert_eq!(
            parse(text, 1),
            [EngineFigures { waiting: Some(2.0), kv_usage: Some(0.5), ..EngineFigures::default() }]
        );
    }
}
