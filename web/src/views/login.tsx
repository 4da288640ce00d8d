import { type FormEvent, useEffect, useState } from "react";
import { ApiError, unwrap, client, loginAddress, storeToken, token } from "../api/client.ts";
import { useTitle } from "../components/basics.tsx";

// LogIn sends people to the identity provider if there is one, or asks for a token and tries it.
export function LogIn({ enter }: { enter: () => void }) {
  useTitle("Log in");
  const [secret, setSecret] = useState("");
  const [stay, setStay] = useState(false);
  const [address, setAddress] = useState<string>(); // undefined: not known yet
  useEffect(() => {
    loginAddress().then(setAddress, () => setAddress("")); // without an answer, a token can still be tried
  }, []);
  const [wrong, setWrong] = useState(
    token() ? "Your token is no longer valid: it is unknown, was revoked, or has expired." : "",
  );
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (!/^[\x21-\x7e]+$/.test(secret.trim()))
      return setWrong("This is not a token: tokens contain only printable ASCII characters.");
    storeToken(secret.trim(), stay);
    try {
      await unwrap(client.GET("/status"));
      enter();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      storeToken("", false);
      setWrong(error.status === 401 ? "This token is unknown, was revoked, or has expired." : error.detail);
    }
  };
  if (address === undefined) return <main className="login" aria-busy="true" />;
  return (
    <main className="login">
      <form onSubmit={(event) => void submit(event)}>
        <h1>Sibyl</h1>
        {address ? (
          <>
            <p>
              <button type="button" className="primary" onClick={() => location.assign(address)}>
                Log in
              </button>
            </p>
            <p>Or use a token:</p>
          </>
        ) : (
          <p>
            This service requires a token. Its operator can create one with{" "}
            <code>sibyl token create --role viewer --name you</code>.
          </p>
        )}
        <label>
          Token
          <input
            // eslint-disable-next-line jsx-a11y/no-autofocus -- the page consists of this field
            autoFocus={!address}
            type="password"
            autoComplete="current-password"
            required
            value={secret}
            onChange={(e) => setSecret(e.target.value)}
          />
        </label>
        <label className="check">
          <input type="checkbox" checked={stay} onChange={(e) => setStay(e.target.checked)} /> Remember it in this
          browser, not just in this tab
        </label>
        {wrong && (
          <p className="bad" role="alert">
            {wrong}
          </p>
        )}
        <button type="submit" className={address ? "" : "primary"}>
          {address ? "Use the token" : "Log in"}
        </button>
      </form>
    </main>
  );
}
