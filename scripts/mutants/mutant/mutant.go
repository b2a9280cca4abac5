//go:build unix

// Package mutant chooses the planted mistake with which a test runs. Command mutants copies it to internal/mutant of the module in
// which it plants mistakes.
package mutant

import (
	"cmp"
	"io"
	"os"
	"strconv"
	"syscall"
)

// chosen is the number of the mistake, 0 for none. The file $MUTANT_HITS has a byte for each number, which becomes 1 when the
// mistake would have made a difference. It is a file because processes that a test starts, and kills, write to it, too.
var (
	chosen, _ = strconv.Atoi(os.Getenv("MUTANT"))
	hits      = shared(os.Getenv("MUTANT_HITS"))
)

func shared(name string) []byte {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	mapped, _ := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return mapped
}

// On reports whether mistake k is chosen. It is called only where the mistake makes a difference.
func On(k int) bool {
	if hits != nil {
		hits[k] = 1
	}
	return k == chosen
}

// Less is a < b, or a <= b with mistake k. LessEqual is a <= b, or a < b with mistake k.
func Less[T cmp.Ordered](k int, a, b T) bool      { return a < b || a == b && On(k) }
func LessEqual[T cmp.Ordered](k int, a, b T) bool { return a < b || a == b && !On(k) }

// NoError is err, or nil with mistake k.
func NoError(k int, err error) error {
	if err != nil && On(k) {
		return nil
	}
	return err
}

// Zero is v, or the zero value of its type with mistake k.
func Zero[T any](k int, v T) (zero T) {
	if On(k) {
		return zero
	}
	return v
}

// One is 1 of like's type, or 0 with mistake k.
func One[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64](
	k int, like T) T {
	if On(k) {
		return 0
	}
	return 1
}

// Other is right, or wrong with mistake k.
func Other[T comparable](k int, right, wrong T) T {
	if right != wrong && On(k) {
		return wrong
	}
	return right
}
