//go:build !race

package fileproc_test

const raceDetector = false
