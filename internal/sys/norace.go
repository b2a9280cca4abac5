//go:build !race

package sys

const Race = false
