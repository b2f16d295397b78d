//! What a transaction of the model costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysqld_model::{Mysqld, MysqldOptions, Transaction};
use uuid::Uuid;

fn main() {
    let folder = std::env::temp_dir().join(format!("mysqld-model-{}", std::process::id()));
    let clock = Arc::new(|| Duration::from_secs(1));
    let options = MysqldOptions::new(folder.clone(), Uuid::from_u128(1), 1, clock);
    let model = Mysqld::new(options).expect("a folder");
    model.start(&[]).expect("it starts");
    let mut client = model.log_in("client").expect("it is let in");
    const COUNT: u64 = 20_000;
    let began = Instant::now();
    for value in 0..COUNT {
        client.begin(Transaction {
            appends: vec![(value % 7, value)],
            reads: vec![],
        });
        client.poll().expect("over").expect("done");
    }
    println!("{:?} a transaction", began.elapsed() / COUNT as u32);
    let began = Instant::now();
    model.kill();
    model.start(&[]).expect("it starts");
    println!(
        "{:?} for a start behind a crash with {COUNT} transactions in the last file",
        began.elapsed()
    );
    drop(client);
    std::fs::remove_dir_all(folder).expect("removed");
}
