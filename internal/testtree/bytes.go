package testtree

import (
	"encoding/binary"
	"hash/fnv"
	"sync"
)

var edgeSizes = func() (sizes []int) {
	for _, n := range []int{1, 512, 1024, 4096, 4608, 8192, 16 << 10, 32 << 10} {
		sizes = append(sizes, n-1, n, n+1)
	}
	return sizes
}()

var cache sync.Map // results of BytesOf by path

// ForgetBytes frees the memory of the results that BytesOf has cached.
func ForgetBytes() { cache.Clear() }

// BytesOf returns the content of the file rel in a test's tree. The length, from 0 to 32 KiB and often near the size of a
// buffer, and every byte are a function of the path, so a reader can check them. The caller must not modify the result.
func BytesOf(rel string) []byte {
	if p, ok := cache.Load(rel); ok {
		return p.([]byte)
	}
	h := fnv.New64a()
	h.Write([]byte(rel))
	state := h.Sum64() | 1
	var size int
	switch pick := int(state >> 40); state >> 8 % 16 {
	case 0:
		size = 0
	case 1, 2:
		size = edgeSizes[pick%len(edgeSizes)]
	case 3:
		size = pick % 20_000
	default:
		size = pick % 1500
	}
	p := make([]byte, size+8)
	for i := 0; i < size; i += 8 {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		binary.LittleEndian.PutUint64(p[i:], state)
	}
	p = p[:size:size]
	cache.Store(rel, p)
	return p
}
