//! What every client that stands in front of another one passes on as it is: votes, transfers of the leadership, and how long to
//! wait after a failure. A macro, because the engine has a trait for each.

/// Implements these calls by a client's field `inner`: `passes_on_votes!([N: ReportingNetwork] Client<N>)`.
#[macro_export]
macro_rules! passes_on_votes {
    ([$($generics:tt)+] $client:ty) => {
        impl<$($generics)+> openraft::network::NetVote<raft_types::TypeConfig> for $client {
            async fn vote(
                &mut self,
                request: openraft::raft::VoteRequest<raft_types::TypeConfig>,
                option: openraft::network::RPCOption,
            ) -> $crate::log_probe::RpcResult<openraft::raft::VoteResponse<raft_types::TypeConfig>> {
                self.inner.vote(request, option).await
            }

            async fn pre_vote(
                &mut self,
                request: openraft::raft::VoteRequest<raft_types::TypeConfig>,
                option: openraft::network::RPCOption,
            ) -> $crate::log_probe::RpcResult<openraft::raft::VoteResponse<raft_types::TypeConfig>> {
                self.inner.pre_vote(request, option).await
            }
        }

        impl<$($generics)+> openraft::network::NetTransferLeader<raft_types::TypeConfig> for $client {
            async fn transfer_leader(
                &mut self,
                request: openraft::raft::TransferLeaderRequest<raft_types::TypeConfig>,
                option: openraft::network::RPCOption,
            ) -> $crate::log_probe::RpcResult<
                openraft::raft::TransferLeaderResponse<raft_types::TypeConfig>,
            > {
                self.inner.transfer_leader(request, option).await
            }
        }

        impl<$($generics)+> openraft::network::NetBackoff<raft_types::TypeConfig> for $client {
            fn backoff(&self) -> Option<openraft::network::Backoff> {
                self.inner.backoff()
            }
        }
    };
}
