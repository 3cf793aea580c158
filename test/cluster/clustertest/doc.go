// Package clustertest runs the program in the folder above, a real kube-apiserver with a real etcd, as a child process
// and lets tests do to it what happens to API servers in life: compaction, kill -9, restarts, stalls, an etcd put back
// to an earlier state. It needs client-go only; the API server's own dependencies stay in the program's module.
//
// Start is for one test, Launch for a TestMain that shares one cluster among all tests of a package. The first call on a
// machine compiles the program, which takes minutes; the binary is then cached and a cluster is ready in seconds.
package clustertest
