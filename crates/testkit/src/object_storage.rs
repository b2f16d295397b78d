//! An S3 server on loopback, in this process. It checks signatures as Amazon's does, and stores objects as files. A test can make
//! it refuse, fail, hang, answer late or return wrong data.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use hyper::Method;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpResponse};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The folder of the objects.
pub const BUCKET: &str = "backups";
/// The access key.
pub const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
/// The secret of the access key.
pub const SECRET_KEY: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// How the server handles requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Conduct {
    /// Requests are served.
    Serves,
    /// The connection is closed without an answer.
    HangsUp,
    /// Requests are accepted, and not answered until the server serves again.
    IsSilent,
    /// Each request is served after the delay [`LATE`].
    AnswersLate,
    /// The upload of an object is acknowledged, but the object is not stored.
    Forgets,
    /// An upload stores wrong bytes of the same length, and is acknowledged.
    KeepsOthers,
    /// A download returns wrong bytes of the same length.
    GivesOthers,
}

/// The delay of [`Conduct::AnswersLate`].
pub const LATE: Duration = Duration::from_secs(2);

/// An S3 server. Dropping it ends the server and deletes its objects.
#[derive(Debug)]
pub struct ObjectStorage {
    address: SocketAddr,
    folder: TempDir,
    conduct: Arc<AtomicU8>,
    requests: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ObjectStorage {
    /// Starts a server with an empty bucket.
    ///
    /// # Errors
    /// If the server cannot listen, or cannot create its folder.
    pub fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join(BUCKET))?;
        let files = FileSystem::new(folder.path()).map_err(|error| anyhow!("{error:?}"))?;
        let mut service = S3ServiceBuilder::new(files);
        service.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = service.build();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let conduct = Arc::new(AtomicU8::new(Conduct::Serves as u8));
        let requests = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let serving = serve(Server {
            listener,
            service,
            folder: folder.path().to_owned(),
            conduct: conduct.clone(),
            requests: requests.clone(),
        });
        let thread = std::thread::Builder::new().name("object-storage".into());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = serving => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Ok(Self {
            address,
            folder,
            conduct,
            requests,
            stop: Some(stop),
            thread: Some(thread.context("cannot start the server's thread")?),
        })
    }

    /// The URL of a folder in the bucket.
    #[must_use]
    pub fn url(&self, folder: &str) -> String {
        format!("s3://{BUCKET}/{folder}")
    }

    /// Returns a client's further options, by the lower-case names of their environment variables.
    #[must_use]
    pub fn options(&self) -> [(&'static str, String); 5] {
        [
            ("aws_endpoint", format!("http://{}", self.address)),
            ("aws_allow_http", "true".to_owned()),
            ("aws_region", "us-east-1".to_owned()),
            ("aws_access_key_id", ACCESS_KEY.to_owned()),
            ("aws_secret_access_key", SECRET_KEY.to_owned()),
        ]
    }

    /// Writes these options into `archive.toml` of a folder, for `archive.options_file`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_options(&self, folder: &Path) -> Result<PathBuf> {
        let file = folder.join("archive.toml");
        let lines = self
            .options()
            .map(|(name, value)| format!("{name} = {value:?}\n"));
        std::fs::write(&file, lines.concat())?;
        Ok(file)
    }

    /// Sets how the server handles requests from now on.
    pub fn conduct(&self, conduct: Conduct) {
        self.conduct.store(conduct as u8, Ordering::Relaxed);
    }

    /// The number of requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The folder in which the objects of the bucket are files.
    #[must_use]
    pub fn bucket(&self) -> PathBuf {
        let root: &Path = self.folder.path();
        root.join(BUCKET)
    }
}

impl Drop for ObjectStorage {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread's result is not needed.
            drop(thread.join());
        }
    }
}

/// The state of the server's thread.
struct Server {
    listener: std::net::TcpListener,
    service: S3Service,
    folder: PathBuf,
    conduct: Arc<AtomicU8>,
    requests: Arc<AtomicU64>,
}

async fn serve(server: Server) -> Result<()> {
    let listener = TcpListener::from_std(server.listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (service, folder) = (server.service.clone(), server.folder.clone());
        let (conduct, requests) = (server.conduct.clone(), server.requests.clone());
        let answering = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let (service, folder, conduct) = (service.clone(), folder.clone(), conduct.clone());
            requests.fetch_add(1, Ordering::Relaxed);
            async move {
                let is = |one: Conduct| conduct.load(Ordering::Relaxed) == one as u8;
                while is(Conduct::IsSilent) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                if is(Conduct::HangsUp) {
                    return Err(anyhow!("it hangs up"));
                }
                let stores = request.method() == Method::PUT;
                // Listings and HEAD requests are answered correctly.
                let gives = request.method() == Method::GET && request.uri().query().is_none();
                let object = folder.join(request.uri().path().trim_start_matches('/'));
                if stores && is(Conduct::Forgets) {
                    all_of(&mut Body::from(request.into_body())).await?;
                    return Ok(hyper::Response::builder()
                        .header(hyper::header::ETAG, "\"0123456789abcdef\"")
                        .body(Body::empty())?);
                }
                let answers_late = is(Conduct::AnswersLate);
                let keeps_others = stores && is(Conduct::KeepsOthers);
                let gives_others = gives && is(Conduct::GivesOthers);
                let answer = Service::call(&service, request).await;
                let mut answer: HttpResponse = answer.map_err(|error| anyhow!("{error:?}"))?;
                if answers_late {
                    tokio::time::sleep(LATE).await;
                }
                if keeps_others && answer.status().is_success() {
                    std::fs::write(&object, others(&std::fs::read(&object)?))?;
                }
                if gives_others && answer.status().is_success() {
                    let bytes = all_of(answer.body_mut()).await?;
                    *answer.body_mut() = Body::from(others(&bytes));
                }
                Ok(answer)
            }
        });
        tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            let connection = http.timer(TokioTimer::new());
            // A disconnected client is not an error.
            drop(
                connection
                    .serve_connection(TokioIo::new(stream), answering)
                    .await,
            );
        });
    }
}

async fn all_of(body: &mut Body) -> Result<Vec<u8>> {
    let bytes = body.store_all_limited(usize::MAX).await;
    Ok(bytes.map_err(|error| anyhow!("{error}"))?.to_vec())
}

/// Returns wrong bytes of the same length, which are neither a zstd frame nor JSON.
fn others(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().rev().copied().collect()
}
