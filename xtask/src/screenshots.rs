//! `cargo xtask screenshots`: takes pictures of the page at `/` in a headless Chromium. The ring has real mysqlds in three regions. The
//! host of its primary is killed and restarted. Each moment has pictures in light and dark, wide and narrow. If the browser reports an
//! error of the page, such as a policy violation, the task fails.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Value, json};
use testkit::cluster::{ChildServer, Cluster, ClusterOptions, Profile, witness_binary};
use testkit::mysql_tree::find_on_path;
use testkit::wait::try_eventually;

use crate::mysql;

const LIMIT: Duration = Duration::from_secs(120);
/// How long the page needs to redraw after a change of its width or colours.
const DRAWN_AFTER: Duration = Duration::from_millis(250);
const REGIONS: [&str; 3] = ["north", "south", "west"];
/// Index of the member with the page. It keeps running, and is in another region than the primary that fails.
const SHOWN: usize = 3;
const WIDE: (u32, u32) = (1280, 800);
const NARROW: (u32, u32) = (390, 844);
/// The names of the pictures in `docs/page.md`.
const IN_THE_DOCS: [&str; 6] = [
    "before-wide-light",
    "during-wide-light",
    "after-wide-dark",
    "before-narrow-light",
    "during-narrow-dark",
    "after-narrow-light",
];

#[derive(Args)]
pub(crate) struct Options {
    /// Copy the documentation's pictures into docs/img, too
    #[arg(long)]
    docs: bool,
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> Result<()> {
    provide_programs()?;
    let out = testkit::checkout().join("target/screenshots");
    fs::create_dir_all(&out)?;
    let mut ring = start_ring()?;
    let mut browser = Browser::start()?;
    browser.open(&format!("http://{}/", ring.http(SHOWN)))?;

    browser.wait_for("document.querySelectorAll('svg .member').length === 9")?;
    browser.wait_for("document.querySelectorAll('svg .silent').length === 0")?;
    browser.wait_for("document.querySelectorAll('svg .hop').length === 8")?;
    // Two promotions give the page more events, like a ring that has run for some time.
    ring.promote("db-south", LIMIT)?;
    ring.promote("db-north", LIMIT)?;
    ring.follows(SHOWN, LIMIT)?;
    write_rows(&ring, 0)?;
    browser.wait_for("document.querySelector('svg .leads .name').textContent === 'db-north'")?;
    browser.shoot_all(&out, "before")?;

    ring.kill_host(0)?;
    browser.wait_for("document.querySelector('#verdict.bad') !== null")?;
    browser.shoot_all(&out, "during")?;

    let primary = ring.primary(LIMIT)?;
    ensure!(primary != 0, "db-north was killed and is the primary");
    write_rows(&ring, primary)?;
    ring.start(0)?;
    ring.follows(0, LIMIT)?;
    browser.wait_for("document.querySelectorAll('svg .silent').length === 0")?;
    browser.wait_for("document.querySelector('#verdict.good') !== null")?;
    browser.wait_for(
        "[...document.querySelectorAll('#events li')].some((event) => event.textContent.includes('db-north answers again'))",
    )?;
    browser.shoot_all(&out, "after")?;

    browser.wait_for("words('`<script>`')[1].outerHTML === '<code>&lt;script&gt;</code>'")?;
    let complaints = BTreeSet::from_iter(&browser.complaints);
    ensure!(
        complaints.is_empty(),
        "the browser complains: {complaints:#?}"
    );
    for name in IN_THE_DOCS.iter().filter(|_| options.docs) {
        let target = testkit::checkout().join(format!("docs/img/page-{name}.png"));
        fs::copy(out.join(format!("{name}.png")), target)?;
    }
    println!("screenshots: {}", out.display());
    Ok(())
}

/// Installs a browser, its fonts, and a program that makes pictures smaller.
fn provide_programs() -> Result<()> {
    if ["chromium", "pngquant"]
        .iter()
        .all(|name| find_on_path(name).is_some())
    {
        return Ok(());
    }
    let packages = ["chromium", "fonts-noto-core", "pngquant"];
    for arguments in [
        &["update"][..],
        &["install", "--yes", "--no-install-recommends"],
    ] {
        let mut command = Command::new("apt-get");
        command.arg("--quiet").args(arguments);
        if arguments.len() > 1 {
            command.args(packages);
        }
        let status = command.status().context("cannot run apt-get")?;
        ensure!(status.success(), "cannot install {}", packages.join(", "));
    }
    Ok(())
}

fn start_ring() -> Result<Cluster> {
    let tree = mysql::provide(false)?;
    let mut databases = Vec::new();
    for (number, region) in (1..).zip(REGIONS) {
        databases.push((region, ChildServer::prepare(&tree, number, None)?.into()));
    }
    let options = ClusterOptions::in_regions(databases).with("log", "disk_reserve_bytes = 0");
    let mut ring = Cluster::prepare(&witness_binary(Profile::Dev)?, options)?;
    for index in 0..ring.size() {
        let text = fs::read_to_string(ring.config(index))?;
        fs::write(
            ring.config(index),
            text.replace("name = \"test\"", "name = \"orders\""),
        )?;
    }
    ring.bootstrap()?;
    ring.wait_until_primary(LIMIT)?;
    Ok(ring)
}

fn write_rows(ring: &Cluster, primary: usize) -> Result<()> {
    let client = ring.client(primary);
    client.sql(
        "CREATE DATABASE IF NOT EXISTS shop; \
         CREATE TABLE IF NOT EXISTS shop.orders (id INT AUTO_INCREMENT PRIMARY KEY)",
    )?;
    for _ in 0..40 {
        client.sql("INSERT INTO shop.orders VALUES ()")?;
    }
    Ok(())
}

// The browser, controlled by its DevTools protocol over two pipes. A message is JSON followed by a zero byte.

struct Browser {
    process: Child,
    _profile: tempfile::TempDir,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    /// The errors of the page that the browser has reported.
    complaints: Vec<String>,
}

impl Browser {
    fn start() -> Result<Self> {
        let profile = tempfile::tempdir()?;
        // The browser reads from file descriptor 3 and writes to 4. As root it runs only without its sandbox, which protects from untrusted
        // pages.
        let script = "exec chromium \"$@\" 3<&0 4>&1 >/dev/null 2>/dev/null </dev/null";
        let mut process = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args([
                "--no-first-run",
                "--disable-dev-shm-usage",
                "--no-proxy-server",
            ])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start chromium")?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to, from) = pipes.context("chromium has no pipes")?;
        Ok(Self {
            process,
            _profile: profile,
            to,
            from: BufReader::new(from),
            calls: 0,
            session: None,
            complaints: Vec::new(),
        })
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let mut message = serde_json::to_vec(&call)?;
        message.push(0);
        self.to.write_all(&message)?;
        self.to.flush()?;
        loop {
            let mut message = Vec::new();
            self.from.read_until(0, &mut message)?;
            ensure!(message.pop() == Some(0), "chromium ended");
            let message: Value = serde_json::from_slice(&message)?;
            let told = match message["method"].as_str() {
                Some("Log.entryAdded") => Some(&message["params"]["entry"]["text"]),
                Some("Runtime.exceptionThrown") => Some(&message["params"]["exceptionDetails"]),
                _ => None,
            };
            self.complaints.extend(told.map(Value::to_string));
            if message["id"] == self.calls {
                let error = &message["error"];
                ensure!(error.is_null(), "{method}: {error}");
                return Ok(message["result"].clone());
            }
        }
    }

    fn open(&mut self, url: &str) -> Result<()> {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", &attach)?;
        let session = attached["sessionId"].as_str().context("no session")?;
        self.session = Some(session.to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            self.call(domain, &json!({}))?;
        }
        self.look(WIDE, "light")?;
        self.call("Page.navigate", &json!({ "url": url }))?;
        Ok(())
    }

    /// Waits until an expression is true on the page.
    fn wait_for(&mut self, expression: &str) -> Result<()> {
        let guarded =
            format!("(() => {{ try {{ return {expression}; }} catch {{ return false; }} }})()");
        let evaluate = json!({ "expression": guarded });
        try_eventually(expression, LIMIT, || {
            let answer = self.call("Runtime.evaluate", &evaluate)?;
            Ok(answer["result"]["value"] == true)
        })
    }

    fn look(&mut self, (width, height): (u32, u32), colours: &str) -> Result<()> {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width == NARROW.0,
        });
        self.call("Emulation.setDeviceMetricsOverride", &metrics)?;
        let features = [
            json!({ "name": "prefers-color-scheme", "value": colours }),
            json!({ "name": "prefers-reduced-motion", "value": "reduce" }),
        ];
        let media = json!({ "features": features });
        self.call("Emulation.setEmulatedMedia", &media)?;
        Ok(())
    }

    fn shoot_all(&mut self, out: &Path, moment: &str) -> Result<()> {
        let looks = [
            (WIDE, "wide", "light"),
            (NARROW, "narrow", "dark"),
            (WIDE, "wide", "dark"),
            (NARROW, "narrow", "light"),
        ];
        for (size, width, colours) in looks {
            self.look(size, colours)?;
            thread::sleep(DRAWN_AFTER);
            let path = out.join(format!("{moment}-{width}-{colours}.png"));
            self.shoot(size, &path)?;
            println!("screenshots: {}", path.display());
        }
        self.look(WIDE, "light")
    }

    /// Takes a picture of the whole page, whatever its length. Fails if the page is wider than the window.
    fn shoot(&mut self, (width, _): (u32, u32), path: &PathBuf) -> Result<()> {
        let metrics = self.call("Page.getLayoutMetrics", &json!({}))?;
        let content = &metrics["cssContentSize"];
        let (wide, high) = (content["width"].as_f64(), content["height"].as_f64());
        let (Some(wide), Some(high)) = (wide, high) else {
            bail!("the page has no size: {metrics}");
        };
        ensure!(
            wide <= f64::from(width),
            "the page is {wide} wide where there are {width}"
        );
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": high, "scale": 1 });
        let shot = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let shot = self.call("Page.captureScreenshot", &shot)?;
        let data = shot["data"].as_str().context("no picture")?;
        fs::write(path, STANDARD.decode(data)?)?;
        let mut smaller = Command::new("pngquant");
        smaller.args([
            "--force",
            "--skip-if-larger",
            "--strip",
            "--speed=1",
            "--ext=.png",
            "128",
        ]);
        smaller.arg("--").arg(path);
        let status = smaller.status().context("cannot run pngquant")?;
        // pngquant returns 98 if the file would not become smaller.
        ensure!(
            matches!(status.code(), Some(0 | 98)),
            "pngquant ended with {status}"
        );
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends its other processes, too. If it does not answer, it is killed.
        if self.call("Browser.close", &json!({})).is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
