package wire

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"
)

// unzippers holds idle *gzip.Reader.
var unzippers sync.Pool

// gunzip decompresses a message, as far as one may be large.
func gunzip(message []byte) ([]byte, error) {
	src := bytes.NewReader(message)
	z, _ := unzippers.Get().(*gzip.Reader)
	var err error
	if z == nil {
		z, err = gzip.NewReader(src)
	} else {
		err = z.Reset(src)
	}
	if err != nil {
		return nil, &Error{codeInternal, "decompressing the message: " + err.Error()}
	}
	defer unzippers.Put(z)
	plain, err := io.ReadAll(io.LimitReader(z, MaxMessage+1))
	switch {
	case err != nil:
		return nil, &Error{codeInternal, "decompressing the message: " + err.Error()}
	case len(plain) > MaxMessage:
		return nil, errTooLarge(int64(len(plain)))
	}
	return plain, nil
}
