//! Runs docs/archive.md block by block: a ring is set up, backed up, read and restored from an S3 server with the page's own commands.
//! All hosts are lost before the restore. Everything acknowledged up to a given second is present after it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use archive::encryption::Recipients;
use archive::name::PieceName;
use archive::sealed::{NewObject, seal};
use testkit::cluster::{Cluster, Profile, witness_binary};
use testkit::mysql_tree::{MysqlTree, find_on_path};
use testkit::mysqld::Mysqld;
use testkit::object_storage::{ACCESS_KEY, ObjectStorage, SECRET_KEY};
use witness_tests::{Page, Shell, Writers, replicaset_with};

use crate::SCENES;
use crate::a_ring_is_restored_from_its_archive::{ids, launch};
use crate::the_log_is_archived::{Reader, wait_until_archived};

const SOON: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_secs(180);
const PAGE: &str = "docs/archive.md";
const REFUSED: i32 = 4;
/// The first file that is read after the backup.
const BEHIND_THE_BACKUP: &str = "binlog.000002";

#[test]
fn the_page_about_the_archive_leads_from_its_setup_to_a_restore() {
    let _turn = SCENES.take();
    leads_there().unwrap_or_else(|error| panic!("{error:#}"));
}

fn leads_there() -> Result<()> {
    let tree = MysqlTree::require();
    let storage = ObjectStorage::start()?;
    let home = tempfile::tempdir()?;
    let (mut page, mut shell) = (Page::open(PAGE)?, shell(&tree, home.path())?);
    let folder = |name: &str| home.path().join(name).display().to_string();
    fs::create_dir(folder("copies"))?;
    for (example, name) in [
        ("/var/lib/witness-copies", "copies"),
        ("/var/lib/mysql-restored", "restored"),
        ("/var/lib/mysql", "unpacked"),
        ("/var/tmp/drill", "drill"),
        ("/var/tmp/orders", "orders"),
        ("/etc/witness/archive.toml", "archive.toml"),
        ("/etc/witness/archive-recipients.txt", "recipients.txt"),
        ("/etc/witness/archive.identity", "orders-archive.identity"),
    ] {
        page.replace(example, folder(name));
    }
    let mut set = set_up(&mut page, &storage, home.path())?;
    let primary = set.primary(SOON)?;
    let follower = *set
        .databases()
        .iter()
        .find(|member| **member != primary)
        .context("a follower")?;
    set.follows(follower, SOON)?;
    shell.set("WITNESS_CONFIG", set.config(follower));
    let recipient = encrypts_for_a_new_key(&mut page, &shell, set.config(follower))?;

    let write = |first| -> Result<BTreeSet<u64>> {
        let writers = Writers::of(&set, 4, first);
        writers.wait_for_more(200, SOON)?;
        Ok(writers.finish()?.acknowledged())
    };
    let flush = || set.cli_of(0, &["log", "flush"])?.into_text("flush");
    let mut told = write(0)?;
    flush()?;
    let unit = unit(&mut page, &shell, &set, primary)?;
    let writers = Writers::of(&set, 2, 1_000_000);
    writers.wait_for_more(50, SOON)?;
    let said = shell.run(&page.take("sh", "backup --copy-directory")?, A_WHILE)?;
    let (base, _) = said.split_once(':').context("the name of a backup")?;
    page.replace("20261126T030412Z-3", base);
    told.extend(writers.finish()?.acknowledged());
    // Another backup is not due yet.
    shell.run(&unit, A_WHILE)?;
    flush()?;
    told.extend(write(2_000_000)?);
    std::thread::sleep(Duration::from_millis(1100));
    let second = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    page.replace(
        "2026-11-26 10:41:00",
        second.replace('T', " ").replace('Z', ""),
    );
    std::thread::sleep(Duration::from_millis(1100));
    // A mistake, and later writes.
    write(3_000_000)?;
    set.client(primary)
        .sql("DELETE FROM acked.rows WHERE id < 1000000")?;
    let reader = Reader::with(&storage.url("orders"), storage.options(), &set);
    is_read(&mut page, &shell, (&set, &reader), follower)?;
    let has_what_was_told = |server: &Mysqld| -> Result<()> {
        let there = ids(&server.client())?;
        let lost: Vec<_> = told.difference(&there).collect();
        ensure!(
            lost.is_empty(),
            "acknowledged up to {second} and lost: {lost:?}"
        );
        ensure!(
            there.iter().all(|id| *id < 3_000_000),
            "later than {second}"
        );
        Ok(())
    };

    // Reads one file without the `witness` program, from downloaded objects only.
    let objects = storage.bucket().join("orders").display().to_string();
    shell.run(&format!("cp -R {objects} downloaded"), SOON)?;
    fs::create_dir(folder("unpacked"))?;
    let unpacks = page.take("sh", "| tar -x")?;
    shell
        .run_in("downloaded", &unpacks, A_WHILE)?
        .into_text("unpacking")?;
    let mut server = launch(&tree, Path::new(&folder("unpacked")))?;
    shell.add("mysql", &server.client().command_line()?, &[])?;
    for words in ["witness_applier.checkpoint", "mysqlbinlog --stop-datetime"] {
        shell.run(&page.take("sh", words)?, A_WHILE)?;
    }
    has_what_was_told(&server)?;
    let downloaded = home.path().join("downloaded");
    one_file_is_read(&mut page, &shell, &downloaded, &recipient)?;

    // All members are killed, and stay down.
    (0..set.size()).try_for_each(|member| set.kill_host(member))?;
    shell.run(&page.take("sh", "restore")?, A_WHILE)?;
    has_what_was_told(&launch(&tree, Path::new(&folder("restored")))?)?;
    shell.run(&page.take("sh", "drill")?, A_WHILE)?;
    ensure!(
        !Path::new(&folder("drill")).exists(),
        "a drill leaves nothing"
    );

    // The page's list of other backup methods.
    let executed = server.client().gtid_executed()?;
    server.stop()?;
    page.replace("/var/lib/mysql", server.data_dir().display().to_string());
    page.replace("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5000", executed);
    for words in ["backup --data-directory", "register", "prune"] {
        shell.run(&page.take("sh", words)?, A_WHILE)?;
    }
    page.ends()
}

/// Creates a shell with the programs that the page uses.
fn shell(tree: &MysqlTree, home: &Path) -> Result<Shell> {
    let shell = Shell::in_folder(home)?;
    let witness = witness_binary(Profile::Dev)?;
    shell.add("witness", &[witness.into()], &[])?;
    let mut options = tree.server_options();
    if rustix::process::geteuid().is_root() {
        options.push("--user=root".to_owned());
    }
    shell.add("mysqld", &tree.words(&tree.mysqld), &options)?;
    let mysqlbinlog = tree.mysqlbinlog.as_ref().context("mysqlbinlog")?;
    let mut words = tree.words(mysqlbinlog);
    words.push("--no-defaults".into());
    shell.add("mysqlbinlog", &words, &[])?;
    for program in ["zstd", "tar"] {
        let found = find_on_path(program);
        found.with_context(|| format!("the page runs `{program}`: install it"))?;
    }
    Ok(shell)
}

/// Starts a ring with the page's configuration section and options file.
fn set_up(page: &mut Page, storage: &ObjectStorage, home: &Path) -> Result<Cluster> {
    let [(_, endpoint), _, (_, region), ..] = storage.options();
    let secret = format!("{SECRET_KEY:?}");
    for (example, own) in [
        ("https://objects.example.org", endpoint.as_str()),
        ("eu-central-1", region.as_str()),
        ("AKIA…", ACCESS_KEY),
        ("\"…\"", secret.as_str()),
        // Shorter, so that the test does not wait for seconds.
        ("interval = \"5s\"", "interval = \"500ms\""),
    ] {
        page.replace(example, own);
    }
    fs::write(home.join("archive.toml"), page.take("toml", "aws_region")?)?;
    let section = page.take("toml", "[archive]")?;
    let mut lines = section.lines();
    ensure!(lines.next() == Some("[archive]"), "{section}");
    let copies = format!("copy_directory = {:?}", home.join("copies"));
    replicaset_with(2, |options| {
        let options = options.with("archive", copies);
        lines.fold(options, |options, line| options.with("archive", line))
    })
}

/// Checks that the page's further keys are valid, with an encryption key created by the page's command.
fn encrypts_for_a_new_key(page: &mut Page, shell: &Shell, config: &Path) -> Result<Recipients> {
    let said = shell.run(&page.take("sh", "keygen")?, SOON)?;
    let recipient = said
        .split_whitespace()
        .find(|word| word.starts_with("age1"))
        .context("a recipient")?;
    let home = config.parent().context("a folder")?;
    let recipients = page.take("toml", "recipients_file")?;
    let file = recipients.split('"').nth(1).context("a file's name")?;
    fs::write(file, format!("{recipient}\n"))?;
    let text = fs::read_to_string(config)?;
    let identity = page.take("toml", "identity_file")?;
    let keys = format!("[archive]\n{recipients}\n{identity}\n");
    let text = text.replace("[archive]\n", &keys);
    let with_keys = home.join("encrypted.toml");
    fs::write(&with_keys, text)?;
    let check = format!("witness config check --config {}", with_keys.display());
    shell.run(&check, SOON)?;
    Ok(Recipients::of_file(Path::new(file))?)
}

/// Checks that systemd accepts both units. The service's command runs on the host whose configuration the environment names. At the
/// primary it is refused, with the exit code that the unit treats as success.
fn unit(page: &mut Page, shell: &Shell, set: &Cluster, primary: usize) -> Result<String> {
    let folder = set.directory(primary).parent().context("a folder")?;
    page.replace("/usr/bin/witness", "witness");
    page.replace("/etc/witness/witness.toml", "\"$WITNESS_CONFIG\"");
    let mut files = Vec::new();
    let (mut command, mut code) = (None, None);
    for (name, words) in [("service", "[Service]"), ("timer", "[Timer]")] {
        let unit = page.take("ini", words)?;
        let begins = format!("# /etc/systemd/system/witness-backup.{name}\n");
        ensure!(unit.starts_with(&begins), "{unit}");
        for line in unit.lines().filter(|line| !line.is_empty()) {
            let is_section = line.starts_with('[') && line.ends_with(']');
            let has_value = line.split_once('=').is_some_and(|(key, value)| {
                key.chars().all(char::is_alphanumeric) && !value.is_empty()
            });
            ensure!(is_section || has_value || line.starts_with('#'), "{line}");
            command = command.or(line.strip_prefix("ExecStart=").map(str::to_owned));
            code = code.or(line.strip_prefix("SuccessExitStatus=").map(str::to_owned));
        }
        let file = folder.join(format!("witness-backup.{name}"));
        // systemd checks that the program exists, so an existing program is named.
        fs::write(&file, unit.replace("=witness ", "=/bin/sh "))?;
        files.push(file.display().to_string());
    }
    // The checker is installed together with systemd. The test does not need systemd otherwise.
    if find_on_path("systemd-analyze").is_some() {
        let verify = format!("systemd-analyze verify --man=no {}", files.join(" "));
        let done = shell.run_in(".", &verify, SOON)?;
        let told = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success() && !told.contains("witness-backup"),
            "{told}"
        );
    }
    let command = command.context("a command")?;
    let config = set.config(primary).display();
    let at_primary = format!("WITNESS_CONFIG={config}\n{command}");
    let refused = shell.run_in(".", &at_primary, SOON)?;
    ensure!(refused.status.code() == Some(REFUSED), "{refused:?}");
    ensure!(code == Some(REFUSED.to_string()), "{code:?}");
    Ok(command)
}

/// Runs the page's `list`, `verify` and `fetch`, after everything is archived.
fn is_read(
    page: &mut Page,
    shell: &Shell,
    (set, reader): (&Cluster, &Reader),
    member: usize,
) -> Result<()> {
    let log = set.directory(member).join("log");
    ensure!(
        log.join("binlog.000003").exists(),
        "the second one is closed"
    );
    wait_until_archived(set, member, reader);
    page.replace("binlog.000007", BEHIND_THE_BACKUP);
    let said = shell.run(&page.take("sh", "archive verify")?, A_WHILE)?;
    ensure!(said.contains(BEHIND_THE_BACKUP), "{said}");
    Ok(())
}

/// Reads a file that is archived as a whole with only `zstd` and `mysqlbinlog`, and an encrypted one with `age` in addition.
fn one_file_is_read(
    page: &mut Page,
    shell: &Shell,
    downloaded: &Path,
    recipient: &Recipients,
) -> Result<()> {
    const END: &str = "-closed.zst";
    let folder = format!("log/00000001/{BEHIND_THE_BACKUP}");
    let list = format!("ls {folder}/0000000000000000-*{END}");
    let listed = shell.run_in("downloaded", &list, SOON)?.into_text("ls")?;
    let object = listed.trim();
    let name = object.rsplit('/').next().context("a name")?;
    page.replace("0000000000000000-0000000001048731-closed.zst", name);
    let run = |block: &str| {
        let done = shell.run_in("downloaded", block, A_WHILE)?;
        done.into_text("reading one file")
    };
    let said = run(&page.take("sh", "zstd -d -c log/")?)?;
    ensure!(said.contains("GTID_NEXT"), "{said}");

    if find_on_path("age").is_none() {
        return page.leave_out("sh", "age -d", "since there is no `age` on this machine");
    }
    let file = downloaded.join(BEHIND_THE_BACKUP);
    let bytes = fs::read(&file)?;
    fs::remove_file(&file)?;
    let piece = object.replace(".zst", ".json");
    let piece = PieceName::of_manifest(&piece).context("a piece")?;
    let new = NewObject::of(piece, Some(recipient.clone()));
    let encrypted = new.name.clone();
    let mut object = fs::File::create(downloaded.join(&encrypted))?;
    seal(new, &bytes[..], &mut object)?;
    let name = encrypted.rsplit('/').next().context("a name")?;
    page.replace(
        "0000000000000000-0000000001048731-closed-4f0c….zst.age",
        name,
    );
    let identity = "orders-archive.identity";
    fs::copy(
        downloaded.with_file_name(identity),
        downloaded.join(identity),
    )?;
    run(&page.take("sh", "age -d")?)?;
    ensure!(fs::read(&file)? == bytes, "it is another file");
    Ok(())
}
