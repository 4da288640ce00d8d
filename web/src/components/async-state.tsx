// What stands where something is read: that it is awaited, that nothing is there, why it could not be read, or that it is stale.
import { type ReactNode, useEffect, useState } from "react";
import type { ApiError } from "../api/client.ts";
import type { Resource } from "../api/queries.ts";

// Loading says what is waited for, once it takes long enough to be noticed.
export function Loading({ what }: { what: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 300);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="state" aria-busy="true" role="status">
      {late && `Resource ${what} …`}
    </div>
  );
}

// Empty says that nothing is there, and what to do; as the whole page, or within one.
export function Empty({ title, children, page }: { title: string; children?: ReactNode; page?: boolean }) {
  return (
    <div className="state">
      {page ? <h1>{title}</h1> : <strong>{title}</strong>}
      {children && <p>{children}</p>}
    </div>
  );
}

export function Failed({ failure, again }: { failure: ApiError; again?: () => void }) {
  return (
    <div className="state bad" role="alert">
      <strong>{failure.title}</strong>
      <p>{failure.detail}</p>
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

// Stale says that what is shown could not be read again.
function Stale({ failure, again }: { failure: ApiError; again: () => void }) {
  return (
    <p className="notice" role="status">
      <strong>Stale.</strong> This could not be read again:{" "}
      {failure.status === 0 ? `${failure.title}.` : failure.detail}{" "}
      <button type="button" onClick={again}>
        Try again
      </button>
    </p>
  );
}

// Read shows what was read, or why it is not there (yet). A value that could not be read again is shown as stale.
export function Async<T>({ of, what, children }: { of: Resource<T>; what: string; children: (value: T) => ReactNode }) {
  if (of.value === undefined)
    return of.failure ? <Failed failure={of.failure} again={of.again} /> : <Loading what={what} />;
  return (
    <>
      {of.failure && <Stale failure={of.failure} again={of.again} />}
      {children(of.value)}
    </>
  );
}
