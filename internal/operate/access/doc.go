// Package access computes what a configuration needs: permissions in the cluster, and permissions, topics and
// streams of a bus. It only reads the configuration and makes no requests.
package access
