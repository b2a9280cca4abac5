package fileproc

import (
	"os"
	"time"

	"github.com/fileproc/fileproc/internal/knobs"
)

func init() {
	// On a busy machine any call is slow, and no test may depend on that.
	knobs.SlowCall = time.Hour
	knobs.AlwaysCold = os.Getenv("FILEPROC_TEST_COLD") == "1"
}
