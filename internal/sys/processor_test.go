package sys

import (
	"runtime"
	"testing"
	"time"
)

// TestProcessorTime: it grows while the process works, and, where the system says so, not while it waits.
func TestProcessorTime(t *testing.T) {
	before := ProcessorTime()
	for end := time.Now().Add(time.Minute); ProcessorTime() < before+20*time.Millisecond; {
		if time.Now().After(end) {
			t.Fatal("a minute of work takes no processor")
		}
	}
	if runtime.GOOS == "plan9" || runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("this system does not say")
	}
	before = ProcessorTime()
	time.Sleep(500 * time.Millisecond)
	if took := ProcessorTime() - before; took > 250*time.Millisecond {
		t.Error("to wait took ", took)
	}
}
