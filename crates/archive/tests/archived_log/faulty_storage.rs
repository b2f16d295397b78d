//! In-memory object storage in which one call fails.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The call is refused.
    Refused,
    /// The storage executes the request, but reports a failure.
    Denied,
    /// The storage never answers.
    Silent,
    /// The storage acknowledges an object without storing it.
    Lost,
    /// The storage stores only half of the object.
    Cut,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [
        Self::Refused,
        Self::Denied,
        Self::Silent,
        Self::Lost,
        Self::Cut,
    ];
}

#[derive(Debug, Default)]
pub(crate) struct FaultyStorage {
    objects: InMemory,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    calls: u64,
    fault: Option<(u64, Fault)>,
    happened: bool,
}

impl FaultyStorage {
    /// The call with this number fails, counted from 0.
    pub(crate) fn with(fault: Fault, at: u64) -> Arc<Self> {
        let storage = Self::default();
        storage.plan(fault, at);
        Arc::new(storage)
    }

    /// Makes the call with this number fail, counted from 0 from now on.
    pub(crate) fn plan(&self, fault: Fault, at: u64) {
        *self.plan.lock().unwrap() = Plan {
            fault: Some((at, fault)),
            ..Plan::default()
        };
    }

    /// Ends the failures; returns whether one occurred.
    pub(crate) fn repair(&self) -> bool {
        let mut plan = self.plan.lock().unwrap();
        plan.fault = None;
        plan.happened
    }

    fn now(&self) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap();
        let at = plan.calls;
        plan.calls += 1;
        let (due, fault) = plan.fault?;
        plan.happened |= due == at;
        (due == at).then_some(fault)
    }

    /// Called first by every method of the storage.
    async fn called(&self) -> Result<Option<Fault>> {
        match self.now() {
            Some(Fault::Refused) => Err(failed()),
            Some(Fault::Silent) => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(failed())
            }
            fault => Ok(fault),
        }
    }
}

fn failed() -> Error {
    Error::Generic {
        store: "faulty",
        source: "503 slow down".into(),
    }
}

impl fmt::Display for FaultyStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStorage")
    }
}

#[async_trait]
impl ObjectStore for FaultyStorage {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.called().await?;
        let whole = bytes::Bytes::from(payload);
        let stored = match fault {
            Some(Fault::Lost) => {
                return Ok(PutResult {
                    e_tag: None,
                    version: None,
                    extensions: Default::default(),
                });
            }
            Some(Fault::Cut) => whole.slice(..whole.len() / 2),
            _ => whole,
        };
        let done = self.objects.put_opts(location, stored.into(), opts).await;
        match fault {
            Some(Fault::Denied) => Err(failed()),
            _ => done,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.called().await?;
        self.objects.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.called().await? {
            Some(Fault::Denied) => Err(failed()),
            _ => self.objects.get_opts(location, options).await,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.now() {
            Some(Fault::Refused) => futures::stream::once(async { Err(failed()) }).boxed(),
            Some(Fault::Silent) => futures::stream::pending().boxed(),
            Some(Fault::Lost) => locations,
            Some(Fault::Denied) => {
                let deleted = self.objects.delete_stream(locations);
                deleted.map(|_| Err(failed())).boxed()
            }
            _ => self.objects.delete_stream(locations),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.now() {
            Some(Fault::Refused | Fault::Denied) => {
                futures::stream::once(async { Err(failed()) }).boxed()
            }
            Some(Fault::Silent) => futures::stream::pending().boxed(),
            _ => self.objects.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
