// Package access says what a configuration needs: permissions in the cluster, and what
// a bus must grant and hold. It reads the configuration alone and asks nobody.
package access
