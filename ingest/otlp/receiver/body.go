package receiver

import (
	"context"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// encoding is the compression of a body.
type encoding uint8

const (
	identity encoding = iota
	gzipped
	zstandard
)

// encodingNames maps the values of HTTP's Content-Encoding and gRPC's grpc-encoding to encodings.
var encodingNames = map[string]encoding{"": identity, "identity": identity, "gzip": gzipped, "zstd": zstandard}

// maxWindow is the largest supported window of zstd, in bytes. RFC 9659 doesn't allow senders to use a larger one.
const maxWindow = 8 << 20

// Errors of bodies.read, in addition to the errors of its source.
var (
	errOverBudget = errors.New("no memory left for the request")
	errTooLarge   = errors.New("the request is too large")
	errCorrupt    = errors.New("the compressed body is damaged")
	errCutOff     = errors.New("the body was cut off") // the budget has called place.cut
)

// bodies reads and uncompresses the bodies of requests. It is safe for concurrent use.
//
// A compressed body is read completely before it is uncompressed, so that a slow sender doesn't occupy a decoder.
// Decoding then takes only processor time, so that a few decoders suffice. Each decoder takes a little over maxWindow
// bytes of memory.
type bodies struct {
	budget   *budget
	memory   memory
	limit    int64 // maximum bytes of an uncompressed body
	decoders chan *decoder
}

func newBodies(b *budget, limit int64, decoders int) *bodies {
	n := max(1, min(int64(decoders), b.maxBytes/(4*maxWindow)))
	s := &bodies{budget: b, limit: limit, decoders: make(chan *decoder, n)}
	for range n {
		s.decoders <- new(decoder)
	}
	return s
}

// read reads the body in src, which is encoded as enc, and returns it uncompressed. The caller must free it. size is
// the number of bytes in src, or −1 if unknown. The error is errOverBudget, errTooLarge, errCorrupt, errCutOff, or an
// error from src or ctx.
func (s *bodies) read(ctx context.Context, p *place, src io.Reader, size int64, enc encoding) (*body, error) {
	limit := s.limit
	if enc != identity {
		limit += maxPiece // compression makes incompressible data a little larger
	}
	switch {
	case size > limit:
		return nil, errTooLarge
	case !s.budget.room(size):
		return nil, errOverBudget // before the first byte is read
	}
	b, err := s.fill(src, size, limit)
	if !p.arrived() {
		if err == nil {
			b.free()
		}
		return nil, errCutOff
	}
	if err == nil && enc != identity {
		b, err = s.uncompress(ctx, b, enc)
	}
	if err != nil {
		return nil, err
	}
	if err := b.join(); err != nil {
		b.free()
		return nil, err
	}
	return b, nil
}

// uncompress returns the uncompressed contents of sent, and frees sent. If all decoders are busy, it waits for one
// until ctx is done.
func (s *bodies) uncompress(ctx context.Context, sent *body, enc encoding) (*body, error) {
	defer sent.free()
	select {
	case d := <-s.decoders:
		defer func() { s.decoders <- d }()
		return s.decode(d, sent, enc)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *bodies) decode(d *decoder, sent *body, enc encoding) (*body, error) {
	r, err := d.open(sent, enc)
	if err != nil {
		return nil, errCorrupt
	}
	b, err := s.fill(r, -1, s.limit)
	switch {
	case err == nil, errors.Is(err, errOverBudget), errors.Is(err, errTooLarge):
		return b, err
	}
	return nil, errCorrupt
}

// fill returns the bytes of src. It returns errTooLarge if src contains more than limit bytes, and errOverBudget if the
// budget has no room for them. size is the size of src, or −1 if unknown.
func (s *bodies) fill(src io.Reader, size, limit int64) (*body, error) {
	b := &body{from: s, announced: size, limit: limit}
	err := b.extend(pieceFor(min(size, minPiece))) // more would be wasted if the bytes never arrive
	if err == nil {
		err = b.fill(src)
	}
	if err != nil {
		b.free()
		return nil, err
	}
	return b, nil
}

// body holds the bytes of one request, in memory charged to the budget. It grows piece by piece, and is joined into one
// slice only when it is complete and valid. A refused body therefore uses only recycled pieces and leaves no garbage,
// regardless of its size.
type body struct {
	from   *bodies
	pieces []*[]byte
	size   int64  // number of bytes in pieces
	limit  int64  // maximum of size
	joined []byte // all bytes if there was more than one piece; pieces is then empty

	announced int64 // size according to the sender, or −1 if unknown
}

// bytes returns the bytes of b. Call [body.join] first.
func (b *body) bytes() []byte {
	if len(b.pieces) == 1 {
		return *b.pieces[0]
	}
	return b.joined
}

func (b *body) free() {
	for _, p := range b.pieces {
		b.from.budget.release(int64(cap(*p)))
		b.from.memory.free(p)
	}
	b.from.budget.release(int64(cap(b.joined)))
	b.pieces, b.joined, b.size = nil, nil, 0
}

// extend adds an empty piece of the given size, or returns errOverBudget.
func (b *body) extend(size int64) error {
	if !b.from.budget.reserve(size) {
		return errOverBudget
	}
	b.pieces = append(b.pieces, b.from.memory.alloc(size))
	return nil
}

// grow adds space for more bytes, or returns errOverBudget. Once the first minPiece bytes have arrived, it trusts the
// announced size and replaces the first piece with a piece of that size, but at most maxPiece, so that most bodies
// needn't be joined.
func (b *body) grow() error {
	first := b.pieces[0]
	if len(b.pieces) > 1 || cap(*first) > minPiece || b.announced <= b.size {
		return b.extend(pieceFor(2 * b.size))
	}
	size := pieceFor(b.announced)
	if !b.from.budget.reserve(size - minPiece) {
		return errOverBudget
	}
	larger := b.from.memory.alloc(size)
	*larger = append(*larger, *first...)
	b.from.memory.free(first)
	b.pieces[0] = larger
	return nil
}

// join moves the bytes of b into one slice, or returns errOverBudget.
func (b *body) join() error {
	if len(b.pieces) == 1 {
		return nil
	}
	if !b.from.budget.reserve(b.size) {
		return errOverBudget
	}
	joined := make([]byte, 0, b.size)
	for _, p := range b.pieces {
		joined = append(joined, *p...)
	}
	b.free()
	b.joined = joined
	return nil
}

// fill appends the bytes of src to b. It reserves memory as bytes arrive. It returns errTooLarge if src contains more
// bytes than b.limit allows.
func (b *body) fill(src io.Reader) error {
	var next [1]byte
	for {
		last := b.pieces[len(b.pieces)-1]
		held := len(*last)
		room := min(int64(cap(*last)-held), b.limit-b.size)
		if room > 0 {
			n, err := src.Read((*last)[held : held+int(room)])
			*last = (*last)[:held+n]
			b.size += int64(n)
			if errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			continue
		}
		// Often src ends exactly here, so reserve memory only if there is another byte.
		if _, err := io.ReadFull(src, next[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if b.size == b.limit {
			return errTooLarge
		}
		if err := b.grow(); err != nil {
			return err
		}
		last = b.pieces[len(b.pieces)-1]
		*last = append(*last, next[0])
		b.size++
	}
}

// reader reads from the pieces of a body.
type reader struct {
	pieces []*[]byte
	at     int // position in the first piece
}

// Read implements [io.Reader]. It reads from one piece at a time.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.pieces) > 0 && r.at == len(*r.pieces[0]) {
		r.pieces, r.at = r.pieces[1:], 0
	}
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*r.pieces[0])[r.at:])
	r.at += n
	return n, nil
}

// ReadByte implements [io.ByteReader], so that gzip doesn't add its own buffer.
func (r *reader) ReadByte() (byte, error) {
	var b [1]byte
	_, err := r.Read(b[:])
	return b[0], err
}

// decoder uncompresses one body at a time. The zero decoder is ready to use.
type decoder struct {
	gzip *gzip.Reader
	zstd *zstd.Decoder
}

// open returns a reader for the uncompressed contents of sent. enc must not be identity.
func (d *decoder) open(sent *body, enc encoding) (io.Reader, error) {
	src := &reader{pieces: sent.pieces}
	switch {
	case enc == gzipped && d.gzip == nil:
		var err error
		d.gzip, err = gzip.NewReader(src)
		return d.gzip, err
	case enc == gzipped:
		return d.gzip, d.gzip.Reset(src)
	case d.zstd == nil:
		var err error
		d.zstd, err = newZstd(src)
		return d.zstd, err
	}
	return d.zstd, d.zstd.Reset(src)
}

func newZstd(r io.Reader) (*zstd.Decoder, error) {
	// With a concurrency of one, the decoder starts no goroutines and needn't be closed.
	single, lean := zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true)
	return zstd.NewReader(r, single, lean, zstd.WithDecoderMaxWindow(maxWindow))
}
