//go:build programs

// Package kueue names the program that the cluster tier builds, so that go.mod and go.sum keep what it needs.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
