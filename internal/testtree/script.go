package testtree

import "math/rand/v2"

// Script returns a generator that makes one number of each byte of data. So a fuzzer that changes one byte
// changes one choice. After the last byte, the generator goes on with numbers that are the same in every
// run.
func Script(data []byte) *rand.Rand {
	return rand.New(&script{data, rand.NewPCG(0, 0)})
}

type script struct {
	rest   []byte
	beyond rand.Source
}

func (s *script) Uint64() uint64 {
	if len(s.rest) == 0 {
		return s.beyond.Uint64()
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return uint64(b) * 0x0101010101010101 // rand takes high bits for some calls, low ones for others
}
