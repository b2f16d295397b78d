//! Who carries out one order at a time, beside the others: nobody waits for another one's order.

use futures::future::BoxFuture;

/// An executor and what it is doing.
pub(crate) enum Executor<T> {
    /// It is there for the next order.
    Idle(T),
    /// It carries one out, and is there again behind that.
    Busy(BoxFuture<'static, T>),
    /// Between the two, while it is told.
    Away,
}

impl<T: Send + 'static> Executor<T> {
    /// The executor, if it is not doing anything.
    pub(crate) fn idle(&mut self) -> Option<&mut T> {
        match self {
            Self::Idle(executor) => Some(executor),
            Self::Busy(_) | Self::Away => None,
        }
    }

    /// Begins what the executor does and is there again behind. One that is doing something goes on with that.
    pub(crate) fn begin<F>(&mut self, order: impl FnOnce(T) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        *self = match std::mem::replace(self, Self::Away) {
            Self::Idle(executor) => Self::Busy(Box::pin(order(executor))),
            other => other,
        };
    }

    /// Waits until it has carried out its order; for ever where it has none. Cancel safe.
    pub(crate) async fn finished(&mut self) {
        match self {
            Self::Busy(order) => *self = Self::Idle(order.await),
            Self::Idle(_) | Self::Away => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_order_goes_on_although_nobody_waits_for_it() {
        let mut executor = Executor::Idle(1);
        assert_eq!(executor.finished().now_or_never(), None);
        let (go, gone) = oneshot::channel();
        executor.begin(|count| async move {
            gone.await.unwrap();
            count + 1
        });
        assert_eq!(executor.finished().now_or_never(), None);
        assert_eq!(executor.idle(), None);
        // It is not told twice.
        executor.begin(|count| async move { count + 10 });
        go.send(()).unwrap();
        executor.finished().await;
        assert_eq!(executor.idle(), Some(&mut 2));
    }
}
