package recordtext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/recordtext"
)

// Words end at a blank or a newline, and may be empty. What is quoted is one word.
func TestWord(t *testing.T) {
	text := "a 7\n  \"b \\n\" \"\" \"c\nholder \n"
	var words []string
	for text != "" {
		words = append(words, recordtext.Word(&text))
	}
	require.Equal(t, []string{"a", "7", "", "", "b \n", "", `"c`, "holder", ""}, words)
	require.Empty(t, recordtext.Word(&text))
}
