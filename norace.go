//go:build !race

package fileproc

const poisoned = false
