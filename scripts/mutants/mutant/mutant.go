//go:build unix

// Package mutant chooses which planted mistake a test runs with. Command mutants copies it to internal/mutant of the module that it
// plants mistakes in.
package mutant

import (
	"cmp"
	"os"
	"strconv"
	"syscall"
)

// chosen is the number of the mistake, 0 for none. The file that $MUTANT_HITS names has a byte for each number, which becomes 1 when
// the mistake would have made a difference: processes that a test starts, and kills, note theirs there, too.
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
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	mapped, _ := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return mapped
}

// On reports whether mistake k is chosen. It is called only where the mistake makes a difference.
func On(k int) bool {
	if hits != nil {
		hits[k] = 1
	}
	return k == chosen
}

// Less is a < b, and a <= b with mistake k. LessEqual is the other way around.
func Less[T cmp.Ordered](k int, a, b T) bool      { return a < b || a == b && On(k) }
func LessEqual[T cmp.Ordered](k int, a, b T) bool { return a < b || a == b && !On(k) }

// NoError is err, and nil with mistake k.
func NoError(k int, err error) error {
	if err != nil && On(k) {
		return nil
	}
	return err
}

// Zero is v, and its type's zero with mistake k.
func Zero[T any](k int, v T) (zero T) {
	if On(k) {
		return zero
	}
	return v
}

// One is 1 of like's type, and 0 with mistake k.
func One[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64](
	k int, like T) T {
	if On(k) {
		return 0
	}
	return 1
}

// Other is right, and wrong with mistake k.
func Other[T comparable](k int, right, wrong T) T {
	if right != wrong && On(k) {
		return wrong
	}
	return right
}
