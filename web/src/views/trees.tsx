export default function View(_: { id?: string }) { return null; }
