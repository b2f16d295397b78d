//! Executors carry out one order at a time, concurrently and without waiting for each other.

use futures::future::BoxFuture;

/// An executor and its state.
pub(crate) enum Executor<T> {
    /// Ready for the next order.
    Idle(T),
    /// Carries out an order; idle afterwards.
    Busy(BoxFuture<'static, T>),
    /// Placeholder during the change of state.
    Away,
}

impl<T: Send + 'static> Executor<T> {
    /// The executor, if it is idle.
    pub(crate) fn idle(&mut self) -> Option<&mut T> {
        match self {
            Self::Idle(executor) => Some(executor),
            Self::Busy(_) | Self::Away => None,
        }
    }

    /// Starts an order; the executor is idle afterwards. A busy executor continues with its present order.
    pub(crate) fn begin<F>(&mut self, order: impl FnOnce(T) -> F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        *self = match std::mem::replace(self, Self::Away) {
            Self::Idle(executor) => Self::Busy(Box::pin(order(executor))),
            other => other,
        };
    }

    /// Waits until it has carried out its order; indefinitely where it has none. Cancel safe.
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
        // A busy executor ignores a second order.
        executor.begin(|count| async move { count + 10 });
        go.send(()).unwrap();
        executor.finished().await;
        assert_eq!(executor.idle(), Some(&mut 2));
    }
}
