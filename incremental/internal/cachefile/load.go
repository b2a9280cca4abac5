package cachefile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// maxLog returns the length of the longest log that a load reads after a snapshot of this size. Writers stay far below it.
func maxLog(snapshot int64) int64 { return snapshot + 64<<20 }

var errForeign = errors.New("the file exists and is not a cache of this package; it is neither used nor replaced")

// readImage reads file. The image is never nil: it is empty if there is no valid file.
func readImage(file string, key [32]byte) (*image, error) {
	info, err := os.Stat(file) // before the open, which would wait for the writer of a FIFO
	if errors.Is(err, fs.ErrNotExist) {
		return &image{}, nil
	}
	if err != nil {
		return &image{}, err
	}
	if !info.Mode().IsRegular() {
		return &image{}, &fs.PathError{Op: "open", Path: file, Err: errNotRegular}
	}
	f, err := open(file, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return &image{}, nil
	}
	if err != nil {
		return &image{}, err
	}
	defer f.Close()
	im, err := readOpen(f, key)
	if err != nil {
		return &image{}, err
	}
	if im == nil {
		im = &image{}
	}
	return im, nil
}

// A source is what a load reads: an open file.
type source interface {
	io.ReaderAt
	Name() string
	Stat() (fs.FileInfo, error)
}

// readOpen reads f. It returns nil if f is damaged, or is of another format or key.
func readOpen(f source, key [32]byte) (*image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, headerSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if !ours(head[:n]) && !allZero(f) {
		return nil, &fs.PathError{Op: "open", Path: f.Name(), Err: errForeign}
	}
	h, ok := decodeHeader(head[:n])
	snapshotEnd := h.sumsAt() + h.sumsLen()
	size := min(info.Size(), snapshotEnd+maxLog(snapshotEnd), maxFile)
	if !ok || h.key != key || size < snapshotEnd {
		return nil, nil
	}
	buf, err := readAll(f, h, size)
	if err != nil || buf == nil {
		return nil, err
	}
	im := &image{
		place:    place{generation: h.generation, snapshotEnd: snapshotEnd, end: snapshotEnd},
		buf:      buf,
		snapshot: layer{data: buf[headerSize:h.dirsAt()], dirs: buf[h.dirsAt():h.sumsAt()], records: int(h.records)},
		sure:     h.stamp.sureUntil(),
		links:    h.stamp.links,
	}
	im.replay()
	return im, nil
}

// allZero reports whether f begins with zeros, 64 KiB or to its end: a crash of the machine
// may leave such a file. A disk image begins with zeros, too, but with fewer.
func allZero(f source) bool {
	b := make([]byte, 64<<10)
	n, err := f.ReadAt(b, 0)
	return notEOF(err) == nil && len(bytes.TrimRight(b[:n], "\x00")) == 0
}

// readAll reads size bytes and verifies the snapshot, in parallel: page faults
// and the copy out of the page cache take most of a load. It returns nil if a
// checksum is wrong.
func readAll(f source, h header, size int64) ([]byte, error) {
	sums := make([]byte, h.sumsLen())
	if _, err := f.ReadAt(sums, h.sumsAt()); err != nil {
		return nil, notEOF(err)
	}
	chunks := h.chunks()
	buf := make([]byte, size)
	if n, err := f.ReadAt(buf[:headerSize], 0); n < headerSize {
		return nil, notEOF(err)
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(context.Background())
	for range min(max(runtime.GOMAXPROCS(0), 1), 4, int((size-headerSize)/chunkSize)+1) {
		g.Go(func() error {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				from := headerSize + i*chunkSize
				if from >= size {
					break
				}
				part := buf[from:min(from+chunkSize, size)]
				_, err := f.ReadAt(part, from) // a short read, after a truncation, leaves zeros
				wrong := i < chunks && crc32.Checksum(part[:min(int64(len(part)), h.sumsAt()-from)], castagnoli) != binary.LittleEndian.Uint32(sums[i*4:])
				if wrong || notEOF(err) != nil {
					return cmp.Or(err, io.EOF) // a wrong checksum is no error
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, notEOF(err)
	}
	return buf, nil
}

func notEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
