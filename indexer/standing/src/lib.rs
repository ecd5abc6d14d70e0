//! What endpoints showed of themselves, as far as rankings go by it: how fast they are, whether they fail, how young they
//! are, what they were given lately, how their caches turn over. Pure: no I/O, time is an argument.
//!
//! In: picks, first tokens, failures and answers, of our own decisions and as peers tell. Out: the factors c and r of the
//! cost rule, its terms R and e, a part of p, and who is out of the choice. The program keeps it beside its endpoints, and
//! the lab's simulator beside its replicas.

mod errors;
mod fading;
mod meter;
mod outlier;
mod speed;
mod turnover;

pub use errors::RecentErrors;
pub use meter::{EndpointMeter, RankMeter};
pub use outlier::{Heard, Outliers, Standing};
pub use speed::{FirstToken, Pace, slownesses};
pub use turnover::Turnover;
