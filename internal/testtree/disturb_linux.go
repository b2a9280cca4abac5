package testtree

import (
	"bytes"
	"math/rand"
	"os"

	"golang.org/x/sys/unix"
)

// Disturb makes one random change to the file path, while a reader may read it. It writes, truncates or removes the
// file, changes its mode, or replaces it. aside is the path of a temporary file. All new content is the byte 'm'.
func Disturb(random *rand.Rand, path, aside string) {
	content := bytes.Repeat([]byte{'m'}, random.Intn(random.Intn(40_000)+1))
	write := func(flags int) { // must not follow a link, nor block on a FIFO
		if f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o644); err == nil {
			f.Write(content)
			f.Close()
		}
	}
	switch random.Intn(10) {
	case 0, 1:
		write(os.O_CREATE | os.O_TRUNC)
	case 2:
		if s, err := os.Lstat(path); err == nil && s.Mode().IsRegular() {
			os.Truncate(path, int64(random.Intn(600)))
		}
	case 3:
		write(os.O_APPEND)
	case 4:
		if os.WriteFile(aside, content, 0o644) == nil {
			os.Rename(aside, path)
		}
	case 5:
		os.Remove(path)
	case 6:
		os.Remove(path)
		os.Mkdir(path, 0o755)
	case 7:
		os.Remove(path)
		os.Symlink([]string{"../secret", path, "nowhere"}[random.Intn(3)], path)
	case 8:
		os.Remove(path)
		unix.Mkfifo(path, 0o644)
	case 9:
		os.Chmod(path, os.FileMode(random.Intn(2))*0o644)
	}
}
