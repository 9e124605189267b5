//! Why `read_committed` ends before the log does.

use super::{Answer, Case, Question, Reason};
use crate::producers::{Coordinators, PartitionProducer, Standing, describe, lost_end};
use crate::words::{moment, span};
use offsetlog::Result;
use std::fmt::Write as _;

/// The answer for a partition whose last stable offset is below its end; `None` for others.
pub(super) fn answer(
    case: &Case<'_>,
    coordinators: &mut Coordinators<'_>,
) -> Result<Option<Answer>> {
    let (stable, end) = (case.log.last_stable_offset()?, case.log.log_end_offset()?);
    if stable >= end {
        return Ok(None);
    }
    let open = case.log.open_transactions()?;
    let holds = |first: i64| first <= stable.max(case.log.log_start_offset().unwrap_or(stable));
    let oldest = open
        .first()
        .filter(|open| open.transaction_first_offset.is_some_and(holds));
    let Some(&oldest) = oldest else {
        let sentence = format!(
            "read_committed ends at the high watermark {stable}, and the log at {end}: the rest is not replicated yet"
        );
        return Ok(Some(Answer {
            remedy: "the replicas in the ISR must catch up; a running broker writes its high watermark every few seconds, so ask again"
                .to_owned(),
            offset: Some(stable),
            ..case.answer(Question::CommittedRead, Reason::NotReplicated, sentence)
        }));
    };
    let producer = describe(
        &case.log,
        case.partition,
        oldest,
        lost_end(&case.log)?.as_deref(),
        coordinators,
    )?;
    let others = match open.len() {
        0 | 1 => String::new(),
        count => format!(" ({} more open transactions wait behind it)", count - 1),
    };
    let sentence = format!(
        "read_committed ends at offset {stable}, {} offsets before the log does: the transaction of {} has no marker{others}",
        end - stable,
        holder(&producer, case.now),
    );
    Ok(Some(Answer {
        remedy: remedy_of(&producer),
        offset: Some(stable),
        timestamp: producer.transaction_start_timestamp,
        producer: Some(producer),
        ..case.answer(Question::CommittedRead, Reason::OpenTransaction, sentence)
    }))
}

/// The producer, its transactional id and the age of its transaction.
pub(super) fn holder(producer: &PartitionProducer, now: i64) -> String {
    let mut words = format!(
        "producer {} (epoch {}",
        producer.producer.producer_id, producer.producer.producer_epoch
    );
    if let Some(id) = &producer.transactional_id {
        let _ = write!(words, ", transactional id {id:?}");
    }
    if let Some(state) = producer.state {
        let _ = write!(words, ", state {state}");
    }
    words.push(')');
    if let Some(start) = producer.transaction_start_timestamp {
        let _ = write!(words, ", begun {},", moment(start, now));
    }
    words
}

/// What would end an open transaction.
pub(super) fn remedy_of(producer: &PartitionProducer) -> String {
    let (topic, partition) = (&producer.partition.topic, producer.partition.partition);
    let id = producer.producer.producer_id;
    let first = producer.producer.transaction_first_offset.unwrap_or(0);
    let offline =
        format!("offline: `offsetlog end-transaction {topic}-{partition} {id} LOG_DIR...");
    match producer.standing {
        Standing::Ongoing | Standing::None => format!(
            "its producer ends it, or a running coordinator aborts it{}; {offline} --abort`",
            producer
                .timeout_ms
                .map_or_else(String::new, |timeout| format!(
                    " {} after its start (transaction.timeout.ms={timeout})",
                    span(i64::from(timeout))
                )),
        ),
        Standing::Committing => {
            format!(
                "its coordinator has decided to commit it, and writes the marker when it runs; {offline}`"
            )
        }
        Standing::Aborting => {
            format!(
                "its coordinator has decided to abort it, and writes the marker when it runs; {offline}`"
            )
        }
        Standing::Hanging => format!(
            "no coordinator knows of it, so it hangs: `kafka-transactions.sh --bootstrap-server ... abort --topic {topic} --partition \
             {partition} --start-offset {first}`; {offline} --without-state --abort`"
        ),
        Standing::Unknown if producer.state.is_some() => format!(
            "its coordinator's record does not tell whether it is of this transaction, and of all of it; {offline} --without-state` with --commit or --abort"
        ),
        Standing::Unknown => format!(
            "its coordinator's partition of __transaction_state is not here: ask again with the log dirs that have it; {offline} \
             --without-state` with --commit or --abort"
        ),
    }
}
