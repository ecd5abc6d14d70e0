//! Which of equal endpoints is picked: any, each as likely, whatever came before.

use std::collections::BTreeMap;

use warmpath_proto::v1::ScoreRequest;

use crate::support::{Indexer, config, end, first_byte, report, tokens};

const HOSTS: [&str; 4] = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", "10.0.0.4:8000"];
const DRAWS: u32 = 1200;
/// Of a fair draw, χ² with three degrees of freedom is above this once in 20,000 runs.
const CHI_SQUARE_MAX: f64 = 22.6;
/// With fifteen: once in 20,000.
const CHI_SQUARE_OF_PAIRS_MAX: f64 = 46.0;

/// Σ (observed − expected)² ÷ expected.
fn chi_square(counts: impl Iterator<Item = u32>, expected: f64) -> f64 {
    counts.map(|count| (f64::from(count) - expected).powi(2) / expected).sum()
}

/// Requests come one after the other, through the whole way of a decision, and each is over before the next comes. Neither
/// how often an endpoint is picked, nor which one is picked after which, is anything but chance.
#[tokio::test]
async fn equals_are_drawn_fairly_under_every_policy_that_knows_equals() {
    let indexer = Indexer::start(&config(&HOSTS)).await;
    let mut client = indexer.client().await;
    for policy in
        ["cost", "least_load", "longest_prefix", "power_of_two", "weighted", "sticky", "new_times_batch"]
    {
        let (mut picks, mut pairs) =
            (BTreeMap::<String, u32>::new(), BTreeMap::<(String, String), u32>::new());
        let mut last: Option<String> = None;
        for number in 0..DRAWS {
            let request = ScoreRequest { policy: policy.into(), ..tokens(number * 100..number * 100 + 100) };
            let answer = client.score(request).await.unwrap().into_inner();
            let (id, endpoint) = (answer.decision_id, answer.candidates[0].endpoint.clone());
            report(&mut client, vec![first_byte(id, &endpoint), end(id, &endpoint, None)]).await;
            *picks.entry(endpoint.clone()).or_default() += 1;
            if let Some(last) = last.replace(endpoint.clone()) {
                *pairs.entry((last, endpoint)).or_default() += 1;
            }
        }
        let hosts = HOSTS.len();
        let of_one = |host: &&str| picks.get(*host).copied().unwrap_or(0);
        let alone = chi_square(HOSTS.iter().map(of_one), f64::from(DRAWS) / hosts as f64);
        assert!(alone < CHI_SQUARE_MAX, "{policy}: {alone:.1} of {picks:?}");
        let after = HOSTS.iter().flat_map(|a| HOSTS.iter().map(move |b| (a.to_string(), b.to_string())));
        let of_pair = |pair: (String, String)| pairs.get(&pair).copied().unwrap_or(0);
        let together = chi_square(after.map(of_pair), f64::from(DRAWS - 1) / (hosts * hosts) as f64);
        assert!(together < CHI_SQUARE_OF_PAIRS_MAX, "{policy}: {together:.1} of {pairs:?}");
    }
    indexer.stop().await;
}
