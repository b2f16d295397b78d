//! NewOrder and Payment after TPC-C, in small: two warehouses of ten districts. As in C5's optimised transactions, the rows
//! that everybody writes come as late as the data allows: a Payment's district and warehouse at its end; a NewOrder's district
//! at its beginning, because the order's number comes from it.

use fastrand::Rng;

const WAREHOUSES: u32 = 2;
const DISTRICTS: u32 = 10;
const CUSTOMERS: u32 = 300;
const ITEMS: u32 = 1_000;
/// Different items of an order.
const LINES: usize = 10;

/// The tables and what stands in them.
pub(super) fn tables() -> String {
    let numbers = |count: u32| {
        format!(
            "(WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n)"
        )
    };
    let (warehouses, districts) = (numbers(WAREHOUSES), numbers(DISTRICTS));
    let (customers, items) = (numbers(CUSTOMERS), numbers(ITEMS));
    format!(
        "SET cte_max_recursion_depth = 100000;
         CREATE TABLE warehouse (w INT PRIMARY KEY, ytd DECIMAL(14,2) NOT NULL);
         CREATE TABLE district (w INT, d INT, ytd DECIMAL(14,2) NOT NULL, next_order INT NOT NULL, PRIMARY KEY (w, d));
         CREATE TABLE customer (w INT, d INT, c INT, balance DECIMAL(14,2) NOT NULL, payments INT NOT NULL,
           data VARCHAR(250) NOT NULL, PRIMARY KEY (w, d, c));
         CREATE TABLE history (id BIGINT PRIMARY KEY AUTO_INCREMENT, w INT, d INT, c INT, amount DECIMAL(8,2));
         CREATE TABLE orders (w INT, d INT, o INT, c INT NOT NULL, line_count INT NOT NULL, PRIMARY KEY (w, d, o),
           KEY by_customer (w, d, c));
         CREATE TABLE new_order (w INT, d INT, o INT, PRIMARY KEY (w, d, o));
         CREATE TABLE order_line (w INT, d INT, o INT, line INT, item INT NOT NULL, quantity INT NOT NULL,
           info CHAR(24) NOT NULL, PRIMARY KEY (w, d, o, line));
         CREATE TABLE stock (w INT, item INT, quantity INT NOT NULL, ytd INT NOT NULL, PRIMARY KEY (w, item));
         INSERT INTO warehouse SELECT i, 0 FROM {warehouses} a;
         INSERT INTO district SELECT a.i, b.i, 0, 1 FROM {warehouses} a, {districts} b;
         INSERT INTO customer SELECT a.i, b.i, c.i, 0, 0, REPEAT('x', 200) FROM {warehouses} a, {districts} b, {customers} c;
         INSERT INTO stock SELECT a.i, b.i, 100, 0 FROM {warehouses} a, {items} b"
    )
}

/// One transaction.
pub(super) fn transaction(_: u64, dice: &mut Rng) -> String {
    let (w, d) = (dice.u32(1..=WAREHOUSES), dice.u32(1..=DISTRICTS));
    let c = dice.u32(1..=CUSTOMERS);
    match dice.bool() {
        true => new_order(w, d, c, dice),
        false => payment(w, d, c, dice.u32(1..500_000)),
    }
}

fn new_order(w: u32, d: u32, c: u32, dice: &mut Rng) -> String {
    // In one order, so that no two of them wait for each other.
    let mut items: Vec<u32> = dice.choose_multiple(1..=ITEMS, LINES);
    items.sort_unstable();
    let wanted: Vec<String> = items.iter().map(ToString::to_string).collect();
    let lines: Vec<String> = (1..)
        .zip(&items)
        .map(|(line, item)| format!("({w}, {d}, @o, {line}, {item}, 5, 'an item of the order')"))
        .collect();
    format!(
        "BEGIN;
         UPDATE district SET next_order = LAST_INSERT_ID(next_order) + 1 WHERE w = {w} AND d = {d};
         SET @o = LAST_INSERT_ID();
         INSERT INTO orders VALUES ({w}, {d}, @o, {c}, {LINES});
         INSERT INTO new_order VALUES ({w}, {d}, @o);
         UPDATE stock SET quantity = IF(quantity > 15, quantity - 5, quantity + 86), ytd = ytd + 5
           WHERE w = {w} AND item IN ({});
         INSERT INTO order_line VALUES {};
         COMMIT;\n",
        wanted.join(","),
        lines.join(",")
    )
}

fn payment(w: u32, d: u32, c: u32, cents: u32) -> String {
    let amount = format!("{}.{:02}", cents / 100, cents % 100);
    format!(
        "BEGIN;
         UPDATE customer SET balance = balance - {amount}, payments = payments + 1 WHERE w = {w} AND d = {d} AND c = {c};
         INSERT INTO history (w, d, c, amount) VALUES ({w}, {d}, {c}, {amount});
         UPDATE district SET ytd = ytd + {amount} WHERE w = {w} AND d = {d};
         UPDATE warehouse SET ytd = ytd + {amount} WHERE w = {w};
         COMMIT;\n"
    )
}
